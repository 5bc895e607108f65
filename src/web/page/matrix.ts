/** An experiment's cells as rows and columns. Pure. */
import type { WireCell, WireMatrix } from '../wire.js';

/** Which number a cell shows: the result of its finished runs, or the last held-out number of every run so far. */
export type Shown = 'result' | 'so_far';

export interface Grid {
  readonly column: string | null;
  readonly values: readonly string[];
  readonly rows: readonly {
    /** Its value of every other axis. */
    readonly axes: readonly (readonly [axis: string, value: string])[];
    /** By the column's value; null for a cell that is not in the experiment. */
    readonly cells: readonly (WireCell | null)[];
  }[];
}

/** One axis across, all others down, in the order of their values; seeds have already been averaged. */
export function gridOf({ axes, cells }: Pick<WireMatrix, 'axes' | 'cells'>, asked: string | null): Grid {
  const column = axes.find(({ name }) => name === asked) ?? axes.at(-1) ?? null;
  const others = axes.filter(({ name }) => name !== column?.name);
  const values = column?.values ?? [''];
  const rows = new Map<string, { axes: [string, string][]; cells: (WireCell | null)[] }>();
  for (const cell of cells) {
    const own = others.map(({ name }): [string, string] => [name, cell.axes[name] ?? '–']);
    const key = JSON.stringify(own);
    const row = rows.get(key) ?? { axes: own, cells: values.map(() => null) };
    row.cells[column === null ? 0 : values.indexOf(cell.axes[column.name] ?? '')] = cell;
    rows.set(key, row);
  }
  const place = ([axis, value]: readonly [string, string]): number =>
    others.find(({ name }) => name === axis)?.values.indexOf(value) ?? 0;
  const sorted = [...rows.values()].sort((a, b) => {
    for (const [at, own] of a.axes.entries()) {
      const difference = place(own) - place(b.axes[at] ?? own);
      if (difference !== 0) return difference;
    }
    return 0;
  });
  return { column: column?.name ?? null, values, rows: sorted };
}

export function valueOf(cell: WireCell, shown: Shown): number | null {
  if (shown === 'result') return cell.mean;
  const values = cell.runs.flatMap(({ held_out }) => held_out ?? []);
  return values.length === 0 ? null : values.reduce((sum, value) => sum + value, 0) / values.length;
}

/** From the worst value (0) to the best (1); null for a cell without a value. */
export function rankOf(value: number | null, all: readonly (number | null)[], lessIsBetter: boolean): number | null {
  const numbers = all.filter((one) => one !== null);
  if (value === null || numbers.length === 0) return null;
  const [low, high] = [Math.min(...numbers), Math.max(...numbers)];
  const rank = high === low ? 1 : (value - low) / (high - low);
  return lessIsBetter && high !== low ? 1 - rank : rank;
}

/** From pale to strong; dark text is readable on all of them. */
export function colourOf(rank: number): string {
  const [from, to] = [
    [247, 240, 222],
    [86, 186, 146],
  ] as const;
  const mixed = from.map((channel, at) => Math.round(channel + rank * ((to[at] ?? channel) - channel)));
  return `rgb(${mixed.join(' ')})`;
}
