/** Numbers in Prometheus' text format (version 0.0.4). */

export type Labels = Readonly<Record<string, string>>;

export interface Sample {
  readonly labels?: Labels;
  readonly value: number;
}

/** One family of numbers: a counter only grows, a gauge goes both ways. */
export function family(
  name: string,
  kind: 'counter' | 'gauge',
  help: string,
  samples: readonly Sample[],
): readonly string[] {
  if (samples.length === 0) return [];
  return [...head(name, kind, help), ...samples.map(({ labels, value }) => line(name, labels ?? {}, value))];
}

/** Counts by label values. */
export class Counts {
  readonly #counts = new Map<string, { readonly labels: Labels; value: number }>();

  add(labels: Labels = {}, by = 1): void {
    const key = Object.values(labels).join('\u0000');
    const known = this.#counts.get(key);
    if (known === undefined) this.#counts.set(key, { labels, value: by });
    else known.value += by;
  }

  samples(): readonly Sample[] {
    return [...this.#counts.values()];
  }

  total(): number {
    let sum = 0;
    for (const { value } of this.#counts.values()) sum += value;
    return sum;
  }
}

/** Number of observations up to each bound. */
export class Histogram {
  readonly #counts: number[];
  #sum = 0;
  #count = 0;

  /** @param bounds ascending. */
  constructor(readonly bounds: readonly number[]) {
    this.#counts = bounds.map(() => 0);
  }

  observe(value: number): void {
    this.#sum += value;
    this.#count++;
    const at = this.bounds.findIndex((bound) => value <= bound);
    if (at >= 0) this.#counts[at]++;
  }

  lines(name: string, labels: Labels): readonly string[] {
    let below = 0;
    const buckets = this.bounds.map((bound, i) => {
      below += this.#counts[i];
      return line(`${name}_bucket`, { ...labels, le: String(bound) }, below);
    });
    return [
      ...buckets,
      line(`${name}_bucket`, { ...labels, le: '+Inf' }, this.#count),
      line(`${name}_sum`, labels, this.#sum),
      line(`${name}_count`, labels, this.#count),
    ];
  }
}

export function head(name: string, kind: 'counter' | 'gauge' | 'histogram', help: string): readonly string[] {
  return [`# HELP ${name} ${help}`, `# TYPE ${name} ${kind}`];
}

function line(name: string, labels: Labels, value: number): string {
  const inner = Object.entries(labels)
    .map(([key, text]) => `${key}="${text.replace(/[\\"\n]/g, (c) => (c === '\n' ? '\\n' : `\\${c}`))}"`)
    .join(',');
  return `${name}${inner === '' ? '' : `{${inner}}`} ${value}`;
}
