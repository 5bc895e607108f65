/** An experiment's cells as rows and columns. Pure. */
import { CLEAR_ERRORS, significanceOf } from '../../core/estimate.js';
import type { WireCell, WireMatrix } from '../wire.js';

/** The number that a cell shows: the result of its finished runs, or the latest held-out number of all its runs. */
export type Shown = 'result' | 'so_far';

export interface Grid {
  readonly column: string | null;
  readonly values: readonly string[];
  readonly rows: readonly {
    /** The value of each other axis. */
    readonly axes: readonly (readonly [axis: string, value: string])[];
    /** One cell per column value. Null if the experiment has no such cell. */
    readonly cells: readonly (WireCell | null)[];
  }[];
}

/** Puts one axis into columns and all others into rows, in the order of their values. Seeds are already averaged. */
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

/** A cell's name within its experiment, which the names of its runs contain. */
export function nameOf({ axes }: Pick<WireCell, 'axes'>): string {
  return Object.entries(axes)
    .map(([axis, value]) => `${axis}-${value}`)
    .join('__');
}

/** The ids of a cell's started runs. */
export function runsOf({ runs }: Pick<WireCell, 'runs'>): string[] {
  return runs.flatMap(({ id }) => id ?? []);
}

export function valueOf(cell: WireCell, shown: Shown): number | null {
  if (shown === 'result') return cell.mean;
  const values = cell.runs.flatMap(({ held_out }) => held_out ?? []);
  return values.length === 0 ? null : values.reduce((sum, value) => sum + value, 0) / values.length;
}

/** How a cell's result compares with the reference cell. */
export type Standing = 'reference' | 'better' | 'worse' | 'level' | 'unknown';

/**
 * Rates each cell by its paired difference from the baseline, or from the best cell if there is no baseline. A difference without a standard error,
 * for example from a single seed, gives `unknown`. Cells without comparable numbers get no standing.
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

/** Legend texts for the standings in `present`. */
export function legendOf(present: ReadonlySet<Standing>, based: boolean): readonly (readonly [Standing, string])[] {
  const than = based ? 'the baseline' : 'the best';
  const meanings: Readonly<Record<Standing, string>> = {
    reference: based ? 'baseline' : 'best mean',
    better: `better than ${than} by at least ${CLEAR_ERRORS} standard errors`,
    level: `within ${CLEAR_ERRORS} standard errors of ${than}`,
    worse: `worse than ${than} by at least ${CLEAR_ERRORS} standard errors`,
    unknown: 'no standard error (single seed)',
  };
  return (Object.entries(meanings) as [Standing, string][]).filter(([standing]) => present.has(standing));
}
