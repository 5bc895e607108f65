/** The settings of thousands of runs in compact form: for each run and key the index of a value. There are few distinct values. */

/** The leaves of settings. A list counts as one value. */
export type Leaves = readonly (readonly [key: string, value: unknown])[];

/** A run's settings: for the index of each key, the index of its value, or 0 if it has none. */
export type SettingsRow = Uint32Array;

export class SettingsTable {
  readonly #keys = new Map<string, number>();
  /** Keyed by JSON, so equal values share an entry. */
  readonly #places = new Map<string, number>();
  /** Index 0 is a missing value. */
  readonly #values: unknown[] = [undefined];

  get keys(): readonly string[] {
    return [...this.#keys.keys()];
  }

  has(key: string): boolean {
    return this.#keys.has(key);
  }

  row(leaves: Leaves): SettingsRow {
    const pairs = leaves.map(([key, value]) => [this.#keyPlace(key), this.#valuePlace(value)] as const);
    const row = new Uint32Array(this.#keys.size);
    for (const [key, value] of pairs) row[key] = value;
    return row;
  }

  /** Undefined if the run has no such key. */
  valueOf(row: SettingsRow, key: string): unknown {
    const place = this.#keys.get(key);
    return place === undefined ? undefined : this.#values[row[place] ?? 0];
  }

  /** Number of distinct values per key among the given runs. Missing counts as a value. */
  counts(rows: readonly SettingsRow[]): { readonly key: string; readonly values: number }[] {
    return [...this.#keys].map(([key, place]) => ({
      key,
      values: new Set(rows.map((row) => row[place] ?? 0)).size,
    }));
  }

  #keyPlace(key: string): number {
    let place = this.#keys.get(key);
    if (place === undefined) this.#keys.set(key, (place = this.#keys.size));
    return place;
  }

  #valuePlace(value: unknown): number {
    const text = JSON.stringify(value) ?? 'null';
    let place = this.#places.get(text);
    if (place === undefined) {
      place = this.#values.push(value) - 1;
      this.#places.set(text, place);
    }
    return place;
  }
}
