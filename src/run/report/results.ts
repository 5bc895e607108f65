/** The result table of an experiment: held-out numbers of its runs, averaged over seeds, best cell first. */
import { meanDifference, showEstimate, significanceOf, type MeanDifference } from '../../core/estimate.js';
import { spreadOf, type Spread } from '../../core/statistics.js';
import { termName } from '../../rewards/score/choice.js';
import { highestValueOf, measureScale, rewardScale } from '../../rewards/score/identity.js';
import { measureTerms, type MeasureTerm } from '../../rewards/score/settings.js';
import type { ReadSettings } from '../../core/schema/mark.js';
import { pairedByPrompt, measuredBy, type promptScores } from './measures.js';
import { parseMetric, type Manner } from '../metric_names.js';
import { showScale, signedEstimate } from './numbers.js';
import { heldOutNumber, type BeforeAfter, type HeldOutNumber, type HeldOutScale, type RunReport } from './read.js';

/** The axis over which numbers are averaged. */
const SEED_AXIS = 'seed';

/** A run of the experiment. The report is null if there is nothing to read yet. */
export interface ResultRun {
  readonly run_name: string;
  readonly axes: Readonly<Record<string, string>>;
  /** Its outcome, as in a sweep. */
  readonly outcome: string;
  readonly report: Pick<RunReport, 'heldout' | 'iteration'> | null;
  /** Reads its settings. Null if they are unknown. */
  readonly settings: ReadSettings | null;
  /** The scores of its last evaluation by prompt. Absent if not needed. See `promptScores`. */
  readonly prompts?: (measure: Parameters<typeof promptScores>[1]) => ReturnType<typeof promptScores>;
}

/**
 * A mean of differences between runs of the same seed, or over the prompts of a single pair of runs. `stderr` is null
 * for a single pair.
 */
export interface PairedDifference extends MeanDifference {
  /** The kind of pairs. Default: seeds. */
  readonly over?: 'prompts';
}

/** A held-out number before training and at the last evaluation, over seeds. */
export interface CellNumber {
  readonly before: Spread | null;
  readonly after: Spread | null;
  /**
   * Difference from the baseline cell, or from the best cell if there is no baseline. Null without such a cell or
   * without common seeds.
   */
  readonly difference: PairedDifference | null;
}

export interface ResultCell extends CellNumber {
  /** The cell's axes without the seed. */
  readonly axes: Readonly<Record<string, string>>;
  readonly is_baseline: boolean;
  /** The other measures, in the order of `Results.measures` after the first. */
  readonly also: readonly CellNumber[];
  /** Name of its held-out reward. Null if unknown. */
  readonly reward: string | null;
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
  /** The metric of the table. Null until a run is evaluated. */
  readonly metric: string | null;
  /** The scale of that metric. Null if unknown, or if cells differ. */
  readonly scale: HeldOutScale | null;
  readonly less_is_better: boolean;
  /**
   * The measures by which cells are compared instead of by their rewards. The first determines the order. Empty if
   * cells are compared by the reward.
   */
  readonly measures: readonly string[];
  /** Why cells are neither ordered nor compared, and what to do. Null if they are. */
  readonly incomparable: string | null;
  /** Finished runs that lack the first measure. */
  readonly unmeasured: readonly string[];
  /** The first measure as an argument of `editrl rescore RUN --measure`. Null if there is none. */
  readonly measure_argument: string | null;
  /** Why there are no differences by the further measures. */
  readonly also_incomparable: readonly string[];
  /** Runs of the best cell whose greedy answers became worse, if the table shows sampled answers. */
  readonly greedy_fell: readonly string[];
  readonly baseline: Readonly<Record<string, string>> | null;
  /** Best first, cells without a number last. In the order of the matrix if cells cannot be compared. */
  readonly cells: readonly ResultCell[];
}

/** Candidates for the metric of the table. The first one that any run has is used. */
const METRICS: readonly { readonly name: string; readonly lessIsBetter: boolean }[] = [
  { name: 'validation/sampled/mean', lessIsBetter: false },
  { name: 'validation/greedy/mean', lessIsBetter: false },
  { name: 'validation/loss', lessIsBetter: true },
];

/** A number that cells have, and how to read it from a run. */
interface Column {
  readonly metric: string;
  readonly scale: HeldOutScale | null;
  readonly lessIsBetter: boolean;
  /** The sampling mode. Null for a loss. */
  readonly manner: string | null;
  readonly of: (run: ResultRun) => BeforeAfter<number> | null;
  /** The same number for greedy answers. Null if there is none. */
  readonly greedyOf: (run: ResultRun) => HeldOutNumber | null;
  /** Why the cells' numbers do not measure the same thing. Null if they do. */
  readonly incomparable: string | null;
  /** The measure for a run's per-prompt scores. Null for the reward. */
  readonly measureOf: (run: ResultRun) => Parameters<typeof promptScores>[1];
}

/** Makes the table. Only finished runs count. `measure` lists the measures by which the experiment compares cells. */
export function tabulate(
  experiment: string,
  runs: readonly ResultRun[],
  baseline: Readonly<Record<string, string>> | null,
  measure: readonly MeasureTerm[] = [],
): Results {
  const finished = runs.filter((run) => run.outcome === 'finished');
  const columns =
    measure.length > 0 ? measure.map((term) => measureColumn(term, finished, runs)) : rewardColumn(finished, runs);
  const [first] = columns;
  const incomparable = first?.incomparable ?? null;
  const base = baseline === null ? null : withoutSeed(baseline);
  const groups = new Map<string, ResultRun[]>();
  for (const run of runs) {
    const key = keyOf(withoutSeed(run.axes));
    groups.set(key, [...(groups.get(key) ?? []), run]);
  }
  const byAxes = new Map(runs.map((run) => [keyOf(run.axes), run]));
  /** The baseline run that has the same values on all other axes as the given run. */
  const partner = (run: ResultRun): ResultRun | undefined =>
    base === null ? undefined : byAxes.get(keyOf({ ...run.axes, ...base }));
  const numberOf = (members: readonly ResultRun[], column: Column | undefined): CellNumber => {
    const own = members.map((run) => valueOf(run, column));
    const isBaseline = partner(members[0]) === members[0];
    return {
      before: spread(own.map((run) => run.before)),
      after: spread(own.map((run) => run.after)),
      difference:
        isBaseline || incomparable !== null || column === undefined || column.incomparable !== null
          ? null
          : differenceOf(
              members.map((run) => [run, partner(run)] as const),
              column,
            ),
    };
  };
  const membersOf = new Map<ResultCell, readonly ResultRun[]>();
  const cellOf = (members: readonly ResultRun[]): ResultCell => ({
    axes: withoutSeed(members[0].axes),
    is_baseline: partner(members[0]) === members[0],
    ...numberOf(members, first),
    also: columns.slice(1).map((column) => numberOf(members, column)),
    reward:
      members.flatMap(({ settings }) => (settings === null ? [] : (rewardScale(settings)?.label ?? [])))[0] ?? null,
    runs: members.map((run) => valueOf(run, first)),
  });
  for (const members of groups.values()) membersOf.set(cellOf(members), members);
  const lessIsBetter = first?.lessIsBetter ?? false;
  const unsorted = [...membersOf.keys()];
  const cells = incomparable === null ? sorted(unsorted, lessIsBetter) : unsorted;
  const isRanked = incomparable === null && (cells[0]?.after ?? null) !== null;
  const best = isRanked ? (membersOf.get(cells[0]) ?? []) : [];
  const bestBySeed = new Map(best.map((run) => [run.axes[SEED_AXIS] ?? null, run]));
  /** Adds a cell's difference from the best one if there is no baseline. */
  const compared = (cell: ResultCell): ResultCell => {
    if (base !== null || best.length === 0 || cell === cells[0] || first === undefined) return cell;
    const pairs = (membersOf.get(cell) ?? []).map((run) => [run, bestBySeed.get(run.axes[SEED_AXIS] ?? null)] as const);
    return { ...cell, difference: differenceOf(pairs, first) };
  };
  const evaluated = first !== undefined && finished.some((run) => first.of(run) !== null);
  return {
    experiment,
    metric: evaluated ? first.metric : null,
    scale: incomparable === null ? (first?.scale ?? null) : null,
    less_is_better: lessIsBetter,
    measures: measure.map(termName),
    incomparable,
    unmeasured:
      measure.length === 0
        ? []
        : finished.filter((run) => first === undefined || first.of(run) === null).map(({ run_name }) => run_name),
    measure_argument: measure.length === 0 ? null : argumentOf(measure[0]),
    also_incomparable: incomparable === null ? columns.slice(1).flatMap((column) => column.incomparable ?? []) : [],
    greedy_fell:
      first?.manner === 'sampled'
        ? best.filter((run) => fell(first.greedyOf(run))).map(({ run_name }) => run_name)
        : [],
    baseline: base,
    cells: cells.map(compared),
  };
}

/** A term as a shell argument: its name if all its fields have defaults, else JSON. */
function argumentOf(term: MeasureTerm): string {
  const plain = measureTerms.safeParse([{ name: term.name }]);
  if (plain.success && measureIdentity(plain.data[0]) === measureIdentity(term)) return term.name;
  return `'${JSON.stringify(term).replaceAll("'", "'\\''")}'`;
}

function measureIdentity(term: MeasureTerm): string {
  return measureScale(term, () => null).identity;
}

/** The column of the reward or the loss. Empty if no run was evaluated. */
function rewardColumn(finished: readonly ResultRun[], runs: readonly ResultRun[]): Column[] {
  const metric = METRICS.find(({ name }) => finished.some((run) => run.report?.heldout.metric === name));
  if (metric === undefined) return [];
  const manner = parseMetric(metric.name)?.manner ?? null;
  const having = finished.find((run) => run.report?.heldout.metric === metric.name);
  return [
    {
      metric: metric.name,
      scale: having?.report?.heldout.scale ?? null,
      lessIsBetter: metric.lessIsBetter,
      manner,
      of: ({ report }) => (report === null || report.heldout.metric !== metric.name ? null : report.heldout),
      greedyOf: ({ report }) => (report === null ? null : (heldOutNumber(report.heldout, 'greedy') ?? null)),
      incomparable: metric.lessIsBetter ? null : whyRewardsDiffer(runs),
      measureOf: () => null,
    },
  ];
}

/** The column of a measure. Uses sampled answers if any run has them. */
function measureColumn(term: MeasureTerm, finished: readonly ResultRun[], runs: readonly ResultRun[]): Column {
  const found = ({ report, settings }: ResultRun, wanted: Manner): HeldOutNumber | null => {
    const numbers = report === null || settings === null ? [] : measuredBy(term, report.heldout.numbers, settings);
    return numbers.find((one) => one.manner === wanted) ?? null;
  };
  const manner = finished.some((run) => found(run, 'sampled') !== null) ? 'sampled' : 'greedy';
  const label = termName(term);
  return {
    metric: `validation/${manner}/measure/${label}/mean`,
    scale: { label, most: highestValueOf(term.name) },
    lessIsBetter: false,
    manner,
    of: (run) => {
      const number = found(run, manner);
      return number === null ? null : { before: number.before?.mean ?? null, after: number.after?.mean ?? null };
    },
    greedyOf: (run) => found(run, 'greedy'),
    incomparable: whyJudgesDiffer(term, runs),
    measureOf: (run) => {
      const number = found(run, manner);
      return number === null ? null : { name: number.by ?? '', identity: number.identity };
    },
  };
}

/** Whether a number became worse by more than the usual noise. */
function fell(change: HeldOutNumber | null): boolean {
  const [before, after] = [change?.before ?? null, change?.after ?? null];
  if (change === null || before === null || after === null) return false;
  const stderr = before.stderr === null || after.stderr === null ? null : Math.hypot(before.stderr, after.stderr);
  const difference = change.change ?? { mean: after.mean - before.mean, stderr };
  return difference.mean < 0 && significanceOf(difference) === 'clear';
}

/** Why a measure that uses the run's judge differs between runs: another judge makes it another number. */
function whyJudgesDiffer(term: MeasureTerm, runs: readonly ResultRun[]): string | null {
  if (new Set(knownSettings(runs).map((read) => measureScale(term, read).identity)).size < 2) return null;
  return `not compared: '${termName(term)}' uses each run's own judge, which differs between cells (reward.model, reward.prompts); choose a measure without a judge, or one with its own judge`;
}

/** Why rewards differ between runs. Numbers of different rewards cannot be compared. */
function whyRewardsDiffer(runs: readonly ResultRun[]): string | null {
  const known = knownSettings(runs);
  const scales = new Map(
    known.flatMap((read) => rewardScale(read) ?? []).map((scale) => [scale.identity, scale.label]),
  );
  if (scales.size < 2) return null;
  const labels = [...new Set(scales.values())];
  const named = labels.length === 1 ? `${labels[0]}, with other fields or another judge` : labels.join('; ');
  return `not compared: the cells have different rewards (${named}), so their numbers are on different scales. To compare them, set a measure in the experiment file, such as measure: '${exampleOf(known)}', and repeat the sweep, which scores finished runs from their records`;
}

function knownSettings(runs: readonly ResultRun[]): ReadSettings[] {
  return runs.flatMap(({ settings }) => (settings === null ? [] : [settings]));
}

/** An example of a term for a message: one that a cell trains on and that needs no fields. */
function exampleOf(known: readonly ReadSettings[]): string {
  const modes = known.flatMap((read) => {
    const mode = read('reward.mode');
    return typeof mode === 'string' ? [mode] : [];
  });
  return modes[0] ?? 'TERM';
}

function valueOf(run: ResultRun, column: Column | undefined): ResultCell['runs'][number] {
  const heldout = run.report?.heldout;
  const found = run.outcome === 'finished' && column !== undefined ? column.of(run) : null;
  // A trainer that evaluates only once, at its end, has a number after training but none before.
  const single = found !== null && found.after === null && (heldout?.iterations.before ?? 0) > 0;
  return {
    run_name: run.run_name,
    seed: run.axes[SEED_AXIS] ?? null,
    outcome: run.outcome,
    iteration: run.report?.iteration ?? null,
    before: single ? null : (found?.before ?? null),
    after: (single ? found.before : found?.after) ?? null,
  };
}

/** The difference over seeds, or over prompts for a single pair of runs with the same prompts. */
function differenceOf(
  pairs: readonly (readonly [own: ResultRun, base: ResultRun | undefined])[],
  column: Column,
): PairedDifference | null {
  const values = pairs.map(([own, base]) => {
    return [valueOf(own, column).after, base === undefined ? null : valueOf(base, column).after] as const;
  });
  const bySeed = paired(values);
  if (bySeed?.n !== 1) return bySeed;
  const [own, base] = pairs[values.findIndex(([a, b]) => a !== null && b !== null)];
  return byPrompts(own, base, column) ?? bySeed;
}

function byPrompts(own: ResultRun, base: ResultRun | undefined, column: Column): PairedDifference | null {
  if (base?.prompts === undefined || own.prompts === undefined || column.manner === null) return null;
  const difference = meanDifference(
    pairedByPrompt(base.prompts(column.measureOf(base)), own.prompts(column.measureOf(own)), column.manner),
  );
  return difference === null || difference.n < 2 ? null : { ...difference, over: 'prompts' };
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

/** Spread of the finite values. Null if there are none. */
function spread(all: readonly (number | null)[]): Spread | null {
  return spreadOf(finite(all));
}

/** Differences between runs with the same seed, which cancels the seed's effect. */
function paired(pairs: readonly (readonly [own: number | null, base: number | null])[]): PairedDifference | null {
  const over = spread(pairs.map(([own, base]) => (own === null || base === null ? null : own - base)));
  if (over === null) return null;
  return { mean: over.mean, stderr: over.std === null ? null : over.std / Math.sqrt(over.n), n: over.n };
}

/** Best first. Ties and cells without a number keep their order. */
function sorted(cells: readonly ResultCell[], lessIsBetter: boolean): ResultCell[] {
  const worst = lessIsBetter ? Number.POSITIVE_INFINITY : Number.NEGATIVE_INFINITY;
  const value = (cell: ResultCell): number => cell.after?.mean ?? worst;
  return [...cells].sort((a, b) => {
    const [x, y] = [value(a), value(b)];
    return x === y ? 0 : lessIsBetter ? x - y : y - x;
  });
}

/** The best cell and its margin. */
export interface Verdict {
  readonly winner: ResultCell;
  /**
   * The cell it is compared with: its baseline, or the second best if there is no baseline or the winner is the
   * baseline. Null if there is no other cell.
   */
  readonly against: ResultCell | null;
  /** Whether `against` is the winner's baseline. */
  readonly to_baseline: boolean;
  /** Difference over common seeds. Null if there are none. */
  readonly difference: PairedDifference | null;
}

/** Null while no finished run has a held-out number, or if cells cannot be compared. */
export function verdictOf(results: Pick<Results, 'cells' | 'baseline' | 'incomparable'>): Verdict | null {
  if (results.incomparable !== null) return null;
  const [winner, second] = results.cells.filter(({ after }) => after !== null);
  if (winner === undefined) return null;
  const baseline = baselineOf(winner, results);
  const toBaseline = baseline !== null && baseline !== winner && baseline.after !== null;
  const against = toBaseline ? baseline : (second ?? null);
  if (against === null) return { winner, against, to_baseline: false, difference: null };
  // A single seed's difference is already known over prompts.
  if (toBaseline) return { winner, against, to_baseline: true, difference: winner.difference };
  const own = results.baseline === null || baselineOf(against, results) === winner ? against.difference : null;
  if (own !== null) return { winner, against, to_baseline: false, difference: { ...own, mean: -own.mean } };
  const bySeed = new Map(against.runs.map(({ seed, after }) => [seed, after]));
  const pairs = winner.runs.map(({ seed, after }) => [after, bySeed.get(seed) ?? null] as const);
  return { winner, against, to_baseline: false, difference: paired(pairs) };
}

/**
 * The baseline of a cell. It differs only in the axes that the experiment's baseline names. Returns the cell itself if
 * it is a baseline, and null if there is none.
 */
export function baselineOf(
  { axes }: Pick<ResultCell, 'axes'>,
  { cells, baseline }: Pick<Results, 'cells' | 'baseline'>,
): ResultCell | null {
  if (baseline === null) return null;
  const wanted = keyOf({ ...axes, ...baseline });
  return cells.find((cell) => keyOf(cell.axes) === wanted) ?? null;
}

/** A cell's name, such as `kl 3e-4, lr base`. The experiment's name if its only axis is the seed. */
export function cellName({ axes }: Pick<ResultCell, 'axes'>, experiment: string): string {
  const names = Object.entries(axes).map(([axis, value]) => `${axis} ${value}`);
  return names.length === 0 ? experiment : names.join(', ');
}

/** Titles and rows of the table, for a terminal or for Markdown. The first `leftColumns` columns are text. */
export function resultRows(results: Results): { titles: string[]; rows: string[][]; leftColumns: number } {
  const axes = [...new Set(results.cells.flatMap((cell) => Object.keys(cell.axes)))];
  const spreads = results.cells.some((cell) => cell.runs.length > 1);
  const compared = results.baseline !== null && results.incomparable === null;
  const named = results.measures.length > 1;
  const several = named ? results.measures : [''];
  const prefixed = (label: string, title: string): string => (named ? `${label}, ${title}` : title);
  const titles = [
    ...(axes.length === 0 ? ['cell'] : axes),
    ...(results.incomparable === null ? [] : ['reward']),
    ...(spreads ? ['runs'] : []),
    ...several.flatMap((label) => [
      prefixed(label, 'before'),
      prefixed(label, 'after'),
      ...(compared ? [prefixed(label, 'against the baseline')] : []),
    ]),
  ];
  const rows = results.cells.map((cell) => [
    ...(axes.length === 0 ? [results.experiment] : axes.map((axis) => cell.axes[axis] ?? '-')),
    ...(results.incomparable === null ? [] : [cell.reward ?? '-']),
    ...(spreads ? [countOf(cell)] : []),
    ...[cell, ...cell.also].flatMap(({ before, after, difference }) => [
      showSpread(before),
      showSpread(after),
      ...(compared ? [cell.is_baseline ? 'baseline' : showDifference(difference)] : []),
    ]),
  ]);
  const leftColumns = Math.max(1, axes.length) + (results.incomparable === null ? 0 : 1);
  return { titles, rows, leftColumns };
}

/** One line that explains the numbers. */
export function resultCaption(results: Results, arranged: 'by_result' | 'by_axes' = 'by_result'): string {
  const { measures, measure_argument, unmeasured, scale } = results;
  const lacking =
    unmeasured.length === 0
      ? ''
      : `; ${unmeasured.length === 1 ? unmeasured[0] : `${unmeasured.length} finished runs`} not measured yet: repeat the sweep, or run editrl rescore ${unmeasured[0]} --measure ${measure_argument}`;
  if (results.metric === null) {
    return `No finished run has a held-out evaluation${measures.length > 0 ? ` by ${measures[0]}` : ''} yet${lacking}.`;
  }
  const seeds = results.cells.some((cell) => cell.runs.length > 1) ? ', mean ± standard deviation over seeds' : '';
  if (results.incomparable !== null) {
    return `held-out ${results.metric} at the last evaluation${seeds}; ${results.incomparable}`;
  }
  const what = scale === null ? '' : ` (${measures.length > 0 ? 'measure ' : ''}${showScale(scale)})`;
  const order = { by_result: results.less_is_better ? ', lowest first' : ', best first', by_axes: '' }[arranged];
  const pairs = results.cells.flatMap(({ difference }) => difference ?? []);
  const ways = [
    ...(pairs.length === 0 || pairs.some(({ over }) => over === undefined)
      ? ['by seed, mean ± standard error (pairs)']
      : []),
    ...(pairs.some(({ over }) => over === 'prompts') ? ['prompt by prompt, mean ± standard error (prompts)'] : []),
  ];
  const difference = results.baseline === null ? '' : `; differences are paired ${ways.join(', or ')}`;
  const others = results.also_incomparable.map((why) => `; ${why}`).join('');
  const fallen =
    results.greedy_fell.length === 0
      ? ''
      : `; warning: the greedy answers of ${results.greedy_fell.join(', ')}, in the best cell, are worse than before training`;
  return `held-out ${results.metric}${what} at the last evaluation${order}${seeds}${difference}${lacking}${others}${fallen}`;
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
  return `${signedEstimate(value)} (${value.n}${value.over === undefined ? '' : ` ${value.over}`})`;
}
