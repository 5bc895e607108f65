/** The numbers of an evaluation without training, read from its run directory, and how two of them differ prompt by prompt. */
import { meanDifference, type Estimate, type MeanDifference } from '../../core/estimate.js';
import { RunError } from '../../core/errors.js';
import { rewardScale, type Scale } from '../../rewards/score/identity.js';
import { getPath } from '../../schema/paths.js';
import { readMetrics, type Metrics } from '../metrics.js';
import type { RunPaths } from '../paths.js';
import { readRecord } from '../record.js';
import { pairedByPrompt, promptScores, type PromptScore } from './measures.js';

/** A held-out mean of one evaluation. */
export interface EvaluatedNumber extends Estimate {
  /** The measure's name; null for the reward. */
  readonly by: string | null;
  /** How answers were sampled: `sampled`, `greedy`. */
  readonly manner: string;
  /** The held-out set; null for all of them together. */
  readonly set: string | null;
  /** How many answers have a score, and how many have none. */
  readonly n: number;
  readonly unscored: number;
  /** From the other evaluation to this one, over the prompts that both have; absent without another, without a common prompt, and between two rewards. */
  readonly difference?: MeanDifference;
}

export interface EvaluationReport {
  readonly iteration: number;
  /** What the reward's numbers mean; null if there is no reward, or if this version does not know it. */
  readonly scale: Pick<Scale, 'label' | 'most'> | null;
  readonly numbers: readonly EvaluatedNumber[];
  readonly loss: number | null;
  /** Everything that the evaluation measured, by the names that a run's metrics have. */
  readonly metrics: Metrics;
}

/** The metrics of held-out evaluation, apart from the time that it took. */
const MEASURED = /^(validation|control)\//;

/** Reads an evaluation, compared with `base` if that is given, by its reward only where both have the same. Raises RunError where nothing was evaluated. */
export function readEvaluation(
  { paths, iteration }: EvaluationPlace,
  base: EvaluationPlace | null = null,
): EvaluationReport {
  const metrics = evaluatedAt(paths, iteration);
  const record = readRecord(paths);
  if (metrics === null || record === null) throw new RunError('nothing was evaluated here', { where: paths.dir });
  const found = scaleOf(record);
  const other = base === null ? null : scaleOf(readRecord(base.paths));
  const measures = [null, ...measuresIn(metrics)];
  const numbers = measures.flatMap((by) => {
    const measure = by === null ? null : { name: by, identity: null };
    const own = promptScores(paths, measure, iteration);
    const isCompared = base !== null && (by !== null || !differ(found, other));
    const others = isCompared ? promptScores(base.paths, measure, base.iteration) : null;
    return numbersBy(by, metrics, own, others);
  });
  const scale = found === null ? null : { label: found.label, most: found.most };
  return { iteration, scale, numbers, loss: metrics['validation/loss'] ?? null, metrics };
}

function scaleOf(record: { readonly settings: object } | null): Scale | null {
  return record === null ? null : rewardScale((path) => getPath(record.settings, path));
}

/** Whether two rewards are known to be of two scales, so that what one gave says nothing beside what the other gave. */
export function differ(a: Scale | null, b: Scale | null): boolean {
  return a !== null && b !== null && a.identity !== b.identity;
}

/** The run directory that holds an evaluation, and the iteration that it is recorded as. */
export interface EvaluationPlace {
  readonly paths: RunPaths;
  readonly iteration: number;
}

/** The held-out metrics that a run recorded at an iteration; null if it was not evaluated there. */
export function evaluatedAt(paths: RunPaths, iteration: number): Metrics | null {
  const line = readMetrics(paths).findLast((one) => one.iteration === iteration);
  const found = Object.entries(line?.metrics ?? {}).filter(([name]) => MEASURED.test(name));
  return found.length === 0 ? null : Object.fromEntries(found);
}

function measuresIn(metrics: Metrics): string[] {
  const names = Object.keys(metrics).flatMap(
    (name) => /^validation\/[^/]+\/measure\/([^/]+)\/mean$/.exec(name)?.[1] ?? [],
  );
  return [...new Set(names)];
}

function numbersBy(
  by: string | null,
  metrics: Metrics,
  own: ReadonlyMap<string, PromptScore>,
  others: ReadonlyMap<string, PromptScore> | null,
): EvaluatedNumber[] {
  const scores = [...own.values()];
  const named = (form: RegExp): string[] => [
    ...new Set(Object.keys(metrics).flatMap((name) => form.exec(name)?.[1] ?? [])),
  ];
  const manners = named(/^validation\/([^/]+)\/mean$/);
  const sets = manners.length === 0 ? [] : named(new RegExp(`^validation/(.+)/${manners[0]}/mean$`));
  const prefix = (manner: string, set: string | null): string =>
    [`validation`, ...(set === null ? [] : [set]), manner, ...(by === null ? [] : ['measure', by])].join('/');
  return [null, ...(sets.length > 1 ? sets : [])].flatMap((set) =>
    manners.flatMap((manner): EvaluatedNumber[] => {
      const name = prefix(manner, set);
      const mean = metrics[`${name}/mean`];
      if (mean === undefined) return [];
      const n = scores.filter((one) => one.sampling === manner && (set === null || one.set === set)).length;
      const pairs = others === null ? [] : pairedByPrompt(others, own, manner, set ?? undefined);
      const difference = meanDifference(pairs);
      const stderr = metrics[`${name}/stderr`] ?? NaN;
      const unscored = metrics[`${name}/unscored`] ?? 0;
      return [
        {
          by,
          manner,
          set,
          mean,
          stderr: Number.isNaN(stderr) ? null : stderr,
          n,
          unscored,
          ...(difference === null ? {} : { difference }),
        },
      ];
    }),
  );
}
