/** Reads a run's records into one structure. Needs no lock, so it also reads a run in progress. */
import { existsSync } from 'node:fs';
import { RunError } from '../../core/errors.js';
import { measureScale, readMeasure, rewardScale } from '../../rewards/score/identity.js';
import type { ReadSettings } from '../../core/schema/mark.js';
import { getPath } from '../../core/schema/walk.js';
import type { Estimate, MeanDifference } from '../../core/estimate.js';
import { average, standardError } from '../../core/statistics.js';
import { isEvaluated, readMetrics, speedOver, type Metrics, type MetricsLine, type Speed } from '../metrics.js';
import { heldOutMeans, MANNERS, parseMetric, type Manner } from '../metric_names.js';
import type { RunPaths } from '../paths.js';
import { changedSettings, readRecord, type ChangedSetting, type RunRecord } from '../record.js';
import { readState, type BestCheckpoint, type RunStateName } from '../state.js';
import { keptBest } from '../chosen_checkpoint.js';
import { readSpent, type SpendingTotals } from '../spending.js';
import { alarmsIn, columnsOf, type AlarmSpan } from './alarms.js';
import { examOf, type ExamSummary } from './exam.js';
import { promptChangesBetween, readRescoredMeasures, type RescoredMeasure } from './measures.js';
import { heldOutAnswers, type HeldOutAnswer } from './answers.js';

export interface BeforeAfter<T> {
  readonly before: T | null;
  readonly after: T | null;
}

/** A held-out mean at the first and at the last evaluation. */
export interface HeldOutNumber extends BeforeAfter<Estimate> {
  /** The term in `validation.measure`. Null for the reward. */
  readonly by: string | null;
  /**
   * Null if the last evaluation measured it itself. Otherwise the scale (`measureScale`) by which its records were
   * scored afterwards.
   */
  readonly identity: string | null;
  readonly manner: Manner;
  /** The validation source. Null for all sources together. */
  readonly set: string | null;
  /** Paired change from first to last over prompts. Absent without records of single prompts. */
  readonly change?: MeanDifference;
}

/** The scale of a held-out number: the reward's name and maximum, or a loss. */
export interface HeldOutScale {
  readonly label: string;
  /** Null for a loss, where lower is better. */
  readonly most: number | null;
}

/**
 * Held-out evaluation before training and at the last evaluated iteration. `after` is null until there is a second
 * evaluation.
 */
export interface HeldOut extends BeforeAfter<number> {
  /** The metric of `before` and `after`: the sampled mean reward, or the held-out loss if there is no reward. */
  readonly metric: string | null;
  /** The scale of that metric. Null if there is none, or if the run's settings do not state it. */
  readonly scale: HeldOutScale | null;
  readonly iterations: BeforeAfter<number>;
  /** First by the reward over all sources, then by each measure, then by the reward for each source. */
  readonly numbers: readonly HeldOutNumber[];
  readonly loss: BeforeAfter<number>;
  /** Means of the reward's parts, `<term>/<part>`, in the sampling mode of `metric`. */
  readonly parts: Readonly<Record<string, BeforeAfter<number>>>;
}

export interface RunReport {
  readonly run_name: string;
  readonly state: RunStateName;
  readonly reason: string | null;
  readonly iteration: number;
  readonly num_iterations: number;
  readonly heldout: HeldOut;
  /** Mean training reward over the last iterations, with the standard error of that mean. */
  readonly training_reward: (Estimate & { readonly iterations: number }) | null;
  readonly training_loss: number | null;
  /** Some held-out answers, if answers are words. */
  readonly answers: readonly HeldOutAnswer[];
  /** Mean seconds over all iterations. Null if nothing was recorded. */
  readonly seconds_per_iteration: Readonly<Record<TimePart, number | null>>;
  /** Speed over all iterations (`speedOver`). Null if nothing was counted. */
  readonly speed: Speed | null;
  /** Number of episodes without a score, by reason, over the whole run. */
  readonly unscored: Readonly<Record<string, number>>;
  /** The latest exam of the run's reward. Null if there is none. */
  readonly exam: ExamSummary | null;
  /** Requests and tokens spent on a server. Null if there were none. */
  readonly spent: SpendingTotals | null;
  /** Reward hacking alarms, in the order in which they were raised. */
  readonly alarms: readonly AlarmSpan[];
  /** Number of metrics that were not finite, over the whole run. */
  readonly non_finite: number;
  /** Number of evaluated held-out samples that were also in the training data when the run began. */
  readonly in_training: number;
  /** Result-affecting settings that changed during the run. */
  readonly changed_settings: readonly ChangedSetting[];
  /** The best checkpoint, if `checkpoint.keep_best` names its metric. */
  readonly best_checkpoint: BestCheckpoint | null;
  readonly paths: { readonly run: string; readonly curve: string | null; readonly contact_sheet: string | null };
}

/** Parts of an iteration's time. */
export const TIME_SHARES = ['rollout', 'render', 'judge', 'exchange', 'reference', 'update', 'other'] as const;
export const TIME_PARTS = ['total', ...TIME_SHARES] as const;
export type TimePart = (typeof TIME_PARTS)[number];

/** Candidates for the held-out metric. */
const SAMPLED = 'validation/sampled/mean';
const GREEDY = 'validation/greedy/mean';
export const LOSS = 'validation/loss';

const LAST_ITERATIONS = 10;

/**
 * Reads a run. `lines` are its metrics, read if not given. They may end at an iteration. Raises RunError when there is
 * no run or its records are unreadable.
 */
export function readRun(paths: RunPaths, lines?: readonly MetricsLine[]): RunReport {
  const record = readRecord(paths);
  if (record === null) {
    throw new RunError('no run in this folder', {
      where: paths.dir,
      next: '`editrl ls` lists runs.',
    });
  }
  return summarize(paths, readState(paths), lines ?? readMetrics(paths), record);
}

function summarize(
  paths: RunPaths,
  state: ReturnType<typeof readState>,
  lines: readonly MetricsLine[],
  { settings, data = {}, ...record }: Pick<RunRecord, 'settings' | 'data' | 'attempts' | 'fork'>,
): RunReport {
  const trained = lines.filter((line) => line.iteration > 0);
  const existing = (path: string): string | null => (existsSync(path) ? path : null);
  return {
    run_name: paths.runName,
    state: state?.state ?? 'queued',
    reason: state?.reason ?? null,
    iteration: state?.iteration ?? 0,
    num_iterations: state?.num_iterations ?? 0,
    heldout: withChanges(
      paths,
      summarizeHeldOut(lines, { read: (path) => getPath(settings, path), rescored: readRescoredMeasures(paths) }),
    ),
    training_reward: lastReward(trained),
    answers: heldOutAnswers(paths),
    training_loss: trained.at(-1)?.metrics['policy/loss'] ?? null,
    seconds_per_iteration: secondsPerIteration(trained),
    speed: speedOver(trained),
    unscored: sumByPrefix(lines, 'reward/unscored/'),
    exam: examOf(paths, settings),
    spent: readSpent(paths),
    alarms: alarmsIn(columnsOf(trained)),
    non_finite: lines.reduce((sum, line) => sum + (line.metrics['metrics/non_finite'] ?? 0), 0),
    in_training: Object.values(data).reduce((sum, { in_training: found = 0 }) => sum + found, 0),
    changed_settings: changedSettings(record),
    best_checkpoint: keptBest(paths, settings, lines),
    paths: { run: paths.dir, curve: existing(paths.curvePng), contact_sheet: existing(paths.contactSheet) },
  };
}

/** Adds the paired changes over prompts between the first and the last evaluation. */
function withChanges(paths: RunPaths, found: HeldOut): HeldOut {
  const { before, after } = found.iterations;
  if (before === null || after === null) return found;
  const changes = promptChangesBetween(paths, before, after);
  const numbers = found.numbers.map((number) => {
    const { by, identity, manner, set } = number;
    if (number.before === null || number.after === null) return number;
    const change = changes(by === null ? null : { name: by, identity }, manner, set ?? undefined);
    return change === null ? number : { ...number, change };
  });
  return { ...found, numbers };
}

type Both = <T>(read: (metrics: Metrics) => T | null) => BeforeAfter<T>;

/** `<term>/<part>`, which follows the sampling mode in a metric's name. */
const PART = /^[^/]+\/[^/]+$/;
/** Suffix of a term's value scaled to 0 to 1, which is recorded beside its native value. */
const SCALED = '/normalised';

/** Facts about evaluations that are not in a run's lines. */
export interface HeldOutSources {
  /** Reads the run's recorded settings. */
  readonly read?: ReadSettings;
  readonly rescored?: readonly RescoredMeasure[];
}

/**
 * Summarizes the evaluations among the given lines: first and last over all lines, or over the lines that have a
 * number.
 */
export function summarizeHeldOut(lines: readonly MetricsLine[], { read, rescored = [] }: HeldOutSources = {}): HeldOut {
  const evaluated = lines.filter(isEvaluated);
  const first = evaluated.at(0);
  const last = evaluated.length > 1 ? evaluated.at(-1) : undefined;
  const both = firstAndLast(first, last);
  const names = evaluated.flatMap((line) => Object.keys(line.metrics));
  const metric = [SAMPLED, GREEDY, LOSS].find((name) => names.includes(name));
  const own = heldOutMeans(names)
    .filter(({ set, by }) => set === null || by === null)
    .map(({ set, manner, by }): HeldOutNumber => {
      const prefix = ['validation', ...(set === null ? [] : [set]), manner, ...(by === null ? [] : ['measure', by])];
      return { by, identity: null, manner, set, ...both((metrics) => estimate(metrics, prefix.join('/'))) };
    });
  const again = rescored.flatMap(({ name: by, identity, lines: scored }) => {
    const at = (iteration: number | undefined): MetricsLine | undefined =>
      scored.find((line) => line.iteration === iteration);
    const ends = firstAndLast(at(first?.iteration), at(last?.iteration));
    return MANNERS.map((manner): HeldOutNumber => {
      const values = ends((metrics) => estimate(metrics, `validation/${manner}/measure/${by}`));
      return { by, identity, manner, set: null, ...values };
    });
  });
  return {
    ...both((metrics) => (metric === undefined ? null : (metrics[metric] ?? null))),
    metric: metric ?? null,
    scale: metric === undefined ? null : scaleOf(metric, read),
    iterations: { before: first?.iteration ?? null, after: last?.iteration ?? null },
    loss: both((metrics) => metrics['validation/loss'] ?? null),
    parts: metric === undefined ? {} : heldOutParts(metric, names, both),
    numbers: sorted(merged(own, again, { read, ended: last !== undefined })),
  };
}

function firstAndLast(first: MetricsLine | undefined, last: MetricsLine | undefined): Both {
  return (read) => ({
    before: first === undefined ? null : read(first.metrics),
    after: last === undefined ? null : read(last.metrics),
  });
}

function scaleOf(metric: string, read: ReadSettings | undefined): HeldOutScale | null {
  if (metric === LOSS) return { label: 'loss', most: null };
  const found = read === undefined ? null : rewardScale(read);
  return found === null ? null : { label: found.label, most: found.most };
}

/**
 * Merges numbers of evaluations with rescored numbers.
 * A run that got a measure midway has the last evaluation by it and, from its records, the first. These are the same
 * measure if the settings name it with the same fields. `ended` means that there is more than one evaluation.
 */
function merged(
  own: readonly HeldOutNumber[],
  again: readonly HeldOutNumber[],
  { read, ended }: { readonly read: ReadSettings | undefined; readonly ended: boolean },
): HeldOutNumber[] {
  const scales =
    read === undefined ? [] : readMeasure(read('validation.measure')).map((term) => measureScale(term, read));
  const isSame = (one: HeldOutNumber, other: HeldOutNumber): boolean =>
    one.by !== null &&
    one.manner === other.manner &&
    other.identity === scales.find(({ label }) => label === one.by)?.identity;
  const filled = own.map((one): HeldOutNumber => {
    const other = again.find((each) => isSame(one, each));
    if (other === undefined) return one;
    // Selects the source of the last evaluation's scores.
    const identity = (ended ? one.after : one.before) === null ? other.identity : null;
    return { ...one, identity, before: one.before ?? other.before, after: one.after ?? other.after };
  });
  const others = again.filter((each) => !own.some((one) => isSame(one, each)));
  return [...filled, ...others].filter(({ before, after }) => before !== null || after !== null);
}

function sorted(numbers: readonly HeldOutNumber[]): HeldOutNumber[] {
  const rank = ({ by, set }: HeldOutNumber): number => (set !== null ? 2 : by !== null ? 1 : 0);
  const place = ({ by, set, identity }: HeldOutNumber): number =>
    numbers.findIndex((one) => one.by === by && one.set === set && one.identity === identity);
  const manner = (one: HeldOutNumber): number => MANNERS.indexOf(one.manner);
  return [...numbers].sort((a, b) => rank(a) - rank(b) || place(a) - place(b) || manner(a) - manner(b));
}

/** A number over all sources. Undefined if there is none. */
export function heldOutNumber(
  { numbers }: Pick<HeldOut, 'numbers'>,
  manner: Manner,
  by: string | null = null,
): HeldOutNumber | undefined {
  return numbers.find((one) => one.manner === manner && one.by === by && one.set === null);
}

/** The number in the headline, with its error. Undefined for a loss. */
export function headlineNumber(heldout: HeldOut): HeldOutNumber | undefined {
  const found = parseMetric(heldout.metric ?? '');
  return found === null ? undefined : heldOutNumber(heldout, found.manner);
}

function heldOutParts(metric: string, names: readonly string[], both: Both): HeldOut['parts'] {
  const prefix = metric.slice(0, metric.lastIndexOf('/') + 1);
  const found = new Set(
    names.filter((name) => name.startsWith(prefix) && PART.test(name.slice(prefix.length)) && !name.endsWith(SCALED)),
  );
  return Object.fromEntries(
    [...found].map((name) => [name.slice(prefix.length), both((metrics) => metrics[name] ?? null)]),
  );
}

function estimate(metrics: Metrics, prefix: string): Estimate | null {
  const value = metrics[`${prefix}/mean`];
  // A single scored answer has no standard error. Without any, there is no mean either.
  const stderr = metrics[`${prefix}/stderr`] ?? NaN;
  return value === undefined ? null : { mean: value, stderr: Number.isNaN(stderr) ? null : stderr };
}

function lastReward(lines: readonly MetricsLine[]): RunReport['training_reward'] {
  const values = lines
    .map((line) => line.metrics['reward/mean'])
    .filter((value) => value !== undefined && Number.isFinite(value))
    .slice(-LAST_ITERATIONS);
  if (values.length === 0) return null;
  const stderr = values.length > 1 ? standardError(values) : null;
  return { mean: average(values), stderr, iterations: values.length };
}

function secondsPerIteration(lines: readonly MetricsLine[]): RunReport['seconds_per_iteration'] {
  return Object.fromEntries(TIME_PARTS.map((part) => [part, mean(lines, `time/${part}`)])) as Record<
    TimePart,
    number | null
  >;
}

/** The mean of a metric over the lines where it is a finite number. */
function mean(lines: readonly MetricsLine[], name: string): number | null {
  const values = lines
    .map((line) => line.metrics[name])
    .filter((value) => value !== undefined && Number.isFinite(value));
  return values.length === 0 ? null : average(values);
}

function sumByPrefix(lines: readonly MetricsLine[], prefix: string): Record<string, number> {
  const sums: Record<string, number> = {};
  for (const line of lines) {
    // Object.entries would take most of the time of reading a long run.
    for (const name in line.metrics) {
      if (!name.startsWith(prefix)) continue;
      const reason = name.slice(prefix.length);
      sums[reason] = (sums[reason] ?? 0) + line.metrics[name];
    }
  }
  return sums;
}
