/** The result table of an experiment: its runs' held-out numbers, averaged over seeds, best cell first. */
import { spreadOf, type Spread } from '../../core/statistics.js';
import { showEstimate, signedEstimate } from './numbers.js';
import type { RunReport } from './read.js';

/** The axis that is averaged over. */
const SEED_AXIS = 'seed';

/** One run of the experiment; the report is null where there is nothing to read yet. */
export interface ResultRun {
  readonly run_name: string;
  readonly axes: Readonly<Record<string, string>>;
  /** What became of it, in the sweep's words. */
  readonly outcome: string;
  readonly report: Pick<RunReport, 'heldout' | 'iteration'> | null;
}

/** A mean of differences between runs of the same seed; `stderr` is null for a single pair. */
export interface PairedDifference {
  readonly mean: number;
  readonly stderr: number | null;
  readonly n: number;
}

export interface ResultCell {
  /** Without the seed. */
  readonly axes: Readonly<Record<string, string>>;
  readonly is_baseline: boolean;
  /** The held-out number before training and at the last evaluation, over seeds. */
  readonly before: Spread | null;
  readonly after: Spread | null;
  /** Against the baseline cell; null where there is none, or no seed that both have. */
  readonly difference: PairedDifference | null;
  readonly runs: readonly {
    readonly run_name: string;
    readonly seed: string | null;
    readonly outcome: string;
    readonly iteration: number | null;
    readonly before: number | null;
    readonly after: number | null;
  }[];
}

export interface Results {
  readonly experiment: string;
  /** The metric of the table; null while no run was evaluated. */
  readonly metric: string | null;
  readonly less_is_better: boolean;
  readonly baseline: Readonly<Record<string, string>> | null;
  /** Best first; cells without a number last. */
  readonly cells: readonly ResultCell[];
}

/** The metrics that a table may be of, the first that any run has. */
const METRICS: readonly { readonly name: string; readonly lessIsBetter: boolean }[] = [
  { name: 'validation/sampled/mean', lessIsBetter: false },
  { name: 'validation/greedy/mean', lessIsBetter: false },
  { name: 'validation/loss', lessIsBetter: true },
];

/** Makes the table. Only finished runs count: half a training is no result. */
export function tabulate(
  experiment: string,
  runs: readonly ResultRun[],
  baseline: Readonly<Record<string, string>> | null,
): Results {
  const finished = runs.filter((run) => run.outcome === 'finished');
  const metric = METRICS.find(({ name }) => finished.some((run) => run.report?.heldout.metric === name)) ?? null;
  const base = baseline === null ? null : withoutSeed(baseline);
  const groups = new Map<string, ResultRun[]>();
  for (const run of runs) {
    const key = keyOf(withoutSeed(run.axes));
    groups.set(key, [...(groups.get(key) ?? []), run]);
  }
  const value = (run: ResultRun): ReturnType<typeof valueOf> => valueOf(run, metric?.name ?? null);
  const byAxes = new Map(runs.map((run) => [keyOf(run.axes), run]));
  /** The baseline's run that differs from a run in nothing but what the baseline names. */
  const partner = (run: ResultRun): ResultRun | undefined =>
    base === null ? undefined : byAxes.get(keyOf({ ...run.axes, ...base }));
  const cells = [...groups.values()].map((members): ResultCell => {
    const own = members.map(value);
    const isBaseline = partner(members[0]) === members[0];
    return {
      axes: withoutSeed(members[0].axes),
      is_baseline: isBaseline,
      before: spread(own.map((run) => run.before)),
      after: spread(own.map((run) => run.after)),
      difference: isBaseline
        ? null
        : paired(members.map((run, index) => [own[index].after, afterOf(partner(run), value)])),
      runs: own,
    };
  });
  const lessIsBetter = metric?.lessIsBetter ?? false;
  return {
    experiment,
    metric: metric?.name ?? null,
    less_is_better: lessIsBetter,
    baseline: base,
    cells: sorted(cells, lessIsBetter),
  };
}

function valueOf(run: ResultRun, metric: string | null): ResultCell['runs'][number] {
  const heldout = run.report?.heldout;
  const counts = run.outcome === 'finished' && heldout !== undefined && metric !== null && heldout.metric === metric;
  // A trainer that evaluates only once, at its end, has a number after training and none before.
  const single = counts && heldout.after === null && (heldout.iterations.before ?? 0) > 0;
  return {
    run_name: run.run_name,
    seed: run.axes[SEED_AXIS] ?? null,
    outcome: run.outcome,
    iteration: run.report?.iteration ?? null,
    before: counts && !single ? heldout.before : null,
    after: counts ? (single ? heldout.before : heldout.after) : null,
  };
}

function withoutSeed(axes: Readonly<Record<string, string>>): Record<string, string> {
  return Object.fromEntries(Object.entries(axes).filter(([axis]) => axis !== SEED_AXIS));
}

function keyOf(axes: Readonly<Record<string, string>>): string {
  return JSON.stringify(Object.entries(axes).sort(([a], [b]) => (a < b ? -1 : 1)));
}

function finite(values: readonly (number | null)[]): number[] {
  return values.filter((value) => value !== null && Number.isFinite(value)) as number[];
}

/** Of the values that there are; null without one. */
function spread(all: readonly (number | null)[]): Spread | null {
  return spreadOf(finite(all));
}

function afterOf(
  run: ResultRun | undefined,
  value: (run: ResultRun) => { readonly after: number | null },
): number | null {
  return run === undefined ? null : value(run).after;
}

/** Differences between runs that share their seed: what that brings with it cancels out. */
function paired(pairs: readonly (readonly [own: number | null, base: number | null])[]): PairedDifference | null {
  const over = spread(pairs.map(([own, base]) => (own === null || base === null ? null : own - base)));
  if (over === null) return null;
  return { mean: over.mean, stderr: over.std === null ? null : over.std / Math.sqrt(over.n), n: over.n };
}

/** Best first; equal ones and those without a number keep their order. */
function sorted(cells: readonly ResultCell[], lessIsBetter: boolean): ResultCell[] {
  const worst = lessIsBetter ? Number.POSITIVE_INFINITY : Number.NEGATIVE_INFINITY;
  const value = (cell: ResultCell): number => cell.after?.mean ?? worst;
  return [...cells].sort((a, b) => {
    const [x, y] = [value(a), value(b)];
    return x === y ? 0 : lessIsBetter ? x - y : y - x;
  });
}

/** Which cell came out best, and by how much. */
export interface Verdict {
  readonly winner: ResultCell;
  /** What it is compared with: its baseline, or, where that is the winner or there is none, the second best; null where it is alone. */
  readonly against: ResultCell | null;
  /** Whether `against` is the winner's baseline. */
  readonly to_baseline: boolean;
  /** Over the seeds that both have; null where they share none. */
  readonly difference: PairedDifference | null;
}

/** Null while no finished run has a held-out number. */
export function verdictOf(results: Pick<Results, 'cells' | 'baseline'>): Verdict | null {
  const [winner, second] = results.cells.filter(({ after }) => after !== null);
  if (winner === undefined) return null;
  const baseline = baselineOf(winner, results);
  const toBaseline = baseline !== null && baseline !== winner && baseline.after !== null;
  const against = toBaseline ? baseline : (second ?? null);
  if (against === null) return { winner, against, to_baseline: false, difference: null };
  const bySeed = new Map(against.runs.map(({ seed, after }) => [seed, after]));
  const pairs = winner.runs.map(({ seed, after }) => [after, bySeed.get(seed) ?? null] as const);
  return { winner, against, to_baseline: toBaseline, difference: paired(pairs) };
}

/**
 * The cell that a cell is compared with: it differs from it in nothing but what the baseline names, which may be some of the axes alone. The cell
 * itself where it is a baseline; null where there is none.
 */
export function baselineOf(
  { axes }: Pick<ResultCell, 'axes'>,
  { cells, baseline }: Pick<Results, 'cells' | 'baseline'>,
): ResultCell | null {
  if (baseline === null) return null;
  const wanted = keyOf({ ...axes, ...baseline });
  return cells.find((cell) => keyOf(cell.axes) === wanted) ?? null;
}

/** `kl 3e-4, lr base`; the experiment's name where it has no axes but the seed. */
export function cellName({ axes }: Pick<ResultCell, 'axes'>, experiment: string): string {
  const names = Object.entries(axes).map(([axis, value]) => `${axis} ${value}`);
  return names.length === 0 ? experiment : names.join(', ');
}

/** Titles and rows of the table, for a terminal or for Markdown. The first `leftColumns` columns are text. */
export function resultRows(results: Results): { titles: string[]; rows: string[][]; leftColumns: number } {
  const axes = [...new Set(results.cells.flatMap((cell) => Object.keys(cell.axes)))];
  const spreads = results.cells.some((cell) => cell.runs.length > 1);
  const compared = results.baseline !== null;
  const titles = [
    ...(axes.length === 0 ? ['cell'] : axes),
    ...(spreads ? ['runs'] : []),
    'before',
    'after',
    ...(compared ? ['against the baseline'] : []),
  ];
  const rows = results.cells.map((cell) => [
    ...(axes.length === 0 ? [results.experiment] : axes.map((axis) => cell.axes[axis] ?? '-')),
    ...(spreads ? [countOf(cell)] : []),
    showSpread(cell.before),
    showSpread(cell.after),
    ...(compared ? [cell.is_baseline ? 'baseline' : showDifference(cell.difference)] : []),
  ]);
  return { titles, rows, leftColumns: Math.max(1, axes.length) };
}

/** One line that says what the numbers are. */
export function resultCaption(results: Results): string {
  if (results.metric === null) return 'No finished run has a held-out evaluation yet.';
  const order = results.less_is_better ? 'least first' : 'best first';
  const seeds = results.cells.some((cell) => cell.runs.length > 1) ? ', mean ± standard deviation over seeds' : '';
  const difference = results.baseline === null ? '' : '; differences are paired by seed, mean ± standard error (pairs)';
  return `held-out ${results.metric} at the last evaluation, ${order}${seeds}${difference}`;
}

/** The table as a Markdown document. */
export function resultsMarkdown(results: Results): string {
  const { titles, rows, leftColumns } = resultRows(results);
  const line = (cells: readonly string[]): string =>
    `| ${cells.map((cell) => cell.replace(/\|/g, '\\|')).join(' | ')} |`;
  const rule = line(titles.map((_, index) => (index < leftColumns ? '---' : '---:')));
  const body = [line(titles), rule, ...rows.map(line)].join('\n');
  return `# ${results.experiment}\n\n${resultCaption(results)}\n\n${body}\n`;
}

function countOf(cell: ResultCell): string {
  const n = cell.after?.n ?? 0;
  return n === cell.runs.length ? String(n) : `${n} of ${cell.runs.length}`;
}

export function showSpread(value: Spread | null): string {
  if (value === null) return '-';
  return showEstimate({ mean: value.mean, stderr: value.std });
}

export function showDifference(value: PairedDifference | null): string {
  if (value === null) return '-';
  return `${signedEstimate(value)} (${value.n})`;
}
