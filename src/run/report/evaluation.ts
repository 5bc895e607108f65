/**
 * Numbers of an evaluation without training, read from its run directory, and paired differences over prompts between
 * two evaluations.
 */
import { RunError } from '../../core/errors.js';
import { meanDifference, showEstimate, type Estimate, type MeanDifference } from '../../core/estimate.js';
import { formatTable, type Column } from '../../core/terminal.js';
import { measureScale, readMeasure, rewardScale, type Scale } from '../../rewards/score/identity.js';
import type { ReadSettings } from '../../core/schema/mark.js';
import { getPath } from '../../core/schema/walk.js';
import { readMetrics, type Metrics } from '../metrics.js';
import type { RunPaths } from '../paths.js';
import { heldOutMeans, isHeldOut } from '../metric_names.js';
import { readRecord } from '../record.js';
import { pairedByPrompt, promptScores, type PromptScore } from './measures.js';
import { showLoss, showScale, signedEstimate, signedLoss } from './numbers.js';

/** A held-out mean of an evaluation. */
export interface EvaluatedNumber extends Estimate {
  /** The measure's name. Null for the reward. */
  readonly by: string | null;
  /** The sampling mode of the answers: `sampled`, `greedy`. */
  readonly manner: string;
  /** The held-out set. Null for all sets together. */
  readonly set: string | null;
  /** Number of answers with a score, and without one. */
  readonly n: number;
  readonly unscored: number;
  /**
   * Difference from the other evaluation, over the prompts that both have. Absent without another evaluation, without
   * common prompts, or for two different rewards.
   */
  readonly difference?: MeanDifference;
}

export interface EvaluationReport {
  readonly iteration: number;
  /** The scale of the reward. Null if there is no reward, or if this version does not know it. */
  readonly scale: Pick<Scale, 'label' | 'most'> | null;
  readonly numbers: readonly EvaluatedNumber[];
  readonly loss: number | null;
  /** All metrics of the evaluation, with the names that a run's metrics have. */
  readonly metrics: Metrics;
}

/**
 * Reads an evaluation and compares it with `base`, if given. Compares rewards only if both have the same one. Raises
 * RunError when nothing was evaluated.
 */
export function readEvaluation(
  { paths, iteration }: EvaluationPlace,
  base: EvaluationPlace | null = null,
): EvaluationReport {
  const metrics = evaluatedAt(paths, iteration);
  const record = readRecord(paths);
  if (metrics === null || record === null) throw new RunError('no evaluation in this folder', { where: paths.dir });
  const scales = scalesOf((path) => getPath(record.settings, path));
  const otherRecord = base === null ? null : readRecord(base.paths);
  const other = otherRecord === null ? null : scalesOf((path) => getPath(otherRecord.settings, path));
  const means = heldOutMeans(Object.keys(metrics));
  const sets = [null, ...new Set(means.flatMap(({ set }) => set ?? []))];
  const measures = [null, ...new Set(means.flatMap(({ by }) => by ?? []))];
  const numbers = measures.flatMap((by) => {
    const measure = by === null ? null : { name: by, identity: null };
    const own = promptScores(paths, measure, iteration);
    const isCompared = base !== null && (other === null || !useDifferentScales(scales, other, by));
    const others = isCompared ? promptScores(base.paths, measure, base.iteration) : null;
    // A single set is equal to all sets together.
    return (sets.length > 2 ? sets : [null]).flatMap((set) =>
      means
        .filter((one) => one.by === by && one.set === set)
        .map(({ manner }) => evaluatedNumber({ by, manner, set }, metrics, own, others)),
    );
  });
  const { reward } = scales;
  const scale = reward === null ? null : { label: reward.label, most: reward.most };
  return { iteration, scale, numbers, loss: metrics['validation/loss'] ?? null, metrics };
}

/** The scales of an evaluation's numbers. */
export interface Scales {
  /** Null if there is no reward, or if this version does not know it. */
  readonly reward: Scale | null;
  /** The identity of each measure by its name. */
  readonly measures: ReadonlyMap<string, string>;
}

export function scalesOf(read: ReadSettings): Scales {
  const measures = readMeasure(read('validation.measure')).map((term) => measureScale(term, read));
  return { reward: rewardScale(read), measures: new Map(measures.map(({ label, identity }) => [label, identity])) };
}

/**
 * Whether two evaluations use known, different scales for a measure, or for the reward if `by` is null. Their numbers
 * are then not comparable.
 */
export function useDifferentScales(a: Scales, b: Scales, by: string | null): boolean {
  const [one, other] = [a, b].map(({ reward, measures }) => (by === null ? reward?.identity : measures.get(by)));
  return one !== undefined && other !== undefined && one !== other;
}

/** The run directory of an evaluation, and the iteration under which it is recorded. */
export interface EvaluationPlace {
  readonly paths: RunPaths;
  readonly iteration: number;
}

/** The held-out metrics of a run at an iteration. Null if it was not evaluated there. */
export function evaluatedAt(paths: RunPaths, iteration: number): Metrics | null {
  const line = readMetrics(paths).findLast((one) => one.iteration === iteration);
  const found = Object.entries(line?.metrics ?? {}).filter(([name]) => isHeldOut(name));
  return found.length === 0 ? null : Object.fromEntries(found);
}

function evaluatedNumber(
  of: Pick<EvaluatedNumber, 'by' | 'manner' | 'set'>,
  metrics: Metrics,
  own: ReadonlyMap<string, PromptScore>,
  others: ReadonlyMap<string, PromptScore> | null,
): EvaluatedNumber {
  const { by, manner, set } = of;
  const name = ['validation', ...(set === null ? [] : [set]), manner, ...(by === null ? [] : ['measure', by])].join(
    '/',
  );
  const scored = [...own.values()].filter((one) => one.sampling === manner && (set === null || one.set === set));
  const difference = meanDifference(others === null ? [] : pairedByPrompt(others, own, manner, set ?? undefined));
  const stderr = metrics[`${name}/stderr`] ?? NaN;
  return {
    ...of,
    mean: metrics[`${name}/mean`],
    stderr: Number.isNaN(stderr) ? null : stderr,
    n: scored.length,
    unscored: metrics[`${name}/unscored`] ?? 0,
    ...(difference === null ? {} : { difference }),
  };
}

const COUNTS: readonly Column[] = [
  { title: 'n', align: 'right' },
  { title: 'unscored', align: 'right' },
];

/**
 * Means with their errors and counts. With `against`, also the other evaluation's means and the paired difference over
 * prompts.
 */
export function evaluationTable(report: EvaluationReport, against: EvaluationReport | null, width: number): string {
  const { scale, numbers, loss } = report;
  const other = ({ by, manner, set }: EvaluatedNumber): EvaluatedNumber | undefined =>
    against?.numbers.find((one) => one.by === by && one.manner === manner && one.set === set);
  const compared = (cells: readonly string[]): readonly string[] => (against === null ? [] : cells);
  const rows = numbers.map((number) => {
    const { mean, stderr, n, unscored, difference } = number;
    const base = other(number);
    const paired = difference === undefined ? '–' : `${signedEstimate(difference)} (${difference.n})`;
    return [
      labelOf(number),
      showEstimate({ mean, stderr }),
      String(n),
      String(unscored),
      ...compared([base === undefined ? '–' : showEstimate(base), paired]),
    ];
  });
  const [own, base] = [loss, against?.loss ?? null];
  if (own !== null) {
    const cells = compared(base === null ? ['–', '–'] : [showLoss(base), signedLoss(own - base)]);
    rows.push(['loss, lower is better', showLoss(own), ...(numbers.length === 0 ? [] : ['', '']), ...cells]);
  }
  const columns: Column[] = [
    { title: scale === null || numbers.length === 0 ? 'held-out' : `held-out: ${showScale(scale)}` },
    { title: 'mean' },
    ...(numbers.length === 0 ? [] : COUNTS),
    ...(against === null ? [] : [{ title: 'against' }, { title: 'difference (pairs)' }]),
  ];
  return formatTable(columns, rows, { width });
}

function labelOf({ by, manner, set }: EvaluatedNumber): string {
  const named = by === null ? 'reward' : `measure ${by}`;
  return set === null ? `${named}, ${manner}` : `  ${by === null ? '' : `${named}, `}${set}, ${manner}`;
}
