/** An experiment's cells as rows and columns. Pure. */
import { CLEAR_ERRORS, significanceOf } from '../../core/estimate.js';
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

/** A cell's name within its experiment, as it is in the names of its runs. */
export function nameOf({ axes }: Pick<WireCell, 'axes'>): string {
  return Object.entries(axes)
    .map(([axis, value]) => `${axis}-${value}`)
    .join('__');
}

/** The ids of its runs that have begun. */
export function runsOf({ runs }: Pick<WireCell, 'runs'>): string[] {
  return runs.flatMap(({ id }) => id ?? []);
}

export function valueOf(cell: WireCell, shown: Shown): number | null {
  if (shown === 'result') return cell.mean;
  const values = cell.runs.flatMap(({ held_out }) => held_out ?? []);
  return values.length === 0 ? null : values.reduce((sum, value) => sum + value, 0) / values.length;
}

/** How a cell's result compares with what it is measured against. */
export type Standing = 'reference' | 'better' | 'worse' | 'level' | 'unknown';

/**
 * Compares each cell by its paired difference, from the baseline or, without one, from the best cell. A cell whose difference has no error, as of a
 * single seed, has the standing `unknown`. Nothing for cells whose numbers cannot be compared.
 */
export function standingsOf({
  cells,
  less_is_better,
  comparable,
}: Pick<WireMatrix, 'cells' | 'less_is_better' | 'comparable'>): ReadonlyMap<WireCell, Standing> {
  if (!comparable) return new Map();
  const sign = less_is_better ? -1 : 1;
  const based = cells.some(({ is_baseline }) => is_baseline);
  const known = cells.filter(({ mean }) => mean !== null);
  const best = known.reduce<WireCell | null>(
    (found, cell) => (found === null || sign * ((cell.mean ?? 0) - (found.mean ?? 0)) > 0 ? cell : found),
    null,
  );
  const standing = (cell: WireCell): Standing => {
    if (based ? cell.is_baseline : cell === best) return 'reference';
    if (cell.difference === null) return 'unknown';
    const significance = significanceOf(cell.difference);
    if (significance !== 'clear') return significance === 'noise' ? 'level' : 'unknown';
    return sign * cell.difference.mean > 0 ? 'better' : 'worse';
  };
  return new Map(known.map((cell) => [cell, standing(cell)]));
}

/** What the colors of standings mean, for a legend; those of `present` alone. */
export function legendOf(present: ReadonlySet<Standing>, based: boolean): readonly (readonly [Standing, string])[] {
  const than = based ? 'the baseline' : 'the best';
  const meanings: Readonly<Record<Standing, string>> = {
    reference: based ? 'baseline' : 'best mean',
    better: `better than ${than}, by ${CLEAR_ERRORS} standard errors or more`,
    level: `within ${CLEAR_ERRORS} standard errors of ${than}`,
    worse: `worse than ${than}, by ${CLEAR_ERRORS} standard errors or more`,
    unknown: 'no standard error: a single seed',
  };
  return (Object.entries(meanings) as [Standing, string][]).filter(([standing]) => present.has(standing));
}
