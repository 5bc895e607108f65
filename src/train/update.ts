/** Trains on an iteration's episodes: from advantages to optimizer steps. */
import type { GrpoSettings } from '../config/schema/algorithm.js';
import { must } from '../core/errors.js';
import { RandomStream } from '../core/random.js';
import { learningRateAt, type ScheduleOptions } from '../compute/onnx/optimizer.js';
import { shareOf } from '../core/group/peers.js';
import { ruleOf, type LossSpec } from './policies/losses/table.js';
import type { Answer, Group, LearnReport, TrainGroup, Policy, Statistics, WeightsOf } from './policies/policy.js';
import type { GroupAdvantages } from './advantages.js';
import { withAnswerRatios, type AnswerRatio } from './answer_ratio.js';
import { logProbMismatch, UpdateTotals, type Stopwatch } from './grpo_metrics.js';
import { ImportanceWeights, lacksLogProbs } from './importance.js';
import { optimizerSteps } from '../config/hash.js';
import type { TrainedSettings } from '../config/schema/run.js';

export interface UpdateOptions<P, A extends Answer> {
  readonly policy: Policy<P, A, never>;
  readonly algorithm: Pick<
    GrpoSettings,
    | 'clip_range'
    | 'clip_range_high'
    | 'surrogate'
    | 'nft'
    | 'ratio'
    | 'aggregation'
    | 'inner_epochs'
    | 'minibatches'
    | 'kl_coeff'
  > & { readonly advantage?: Pick<GrpoSettings['advantage'], 'clip'> };
  /** The weights that sample, which are also the old weights of a loss. Default: the trained ones. */
  readonly sampledBy?: Exclude<WeightsOf, 'reference'>;
  /** Maximum number of actions of an answer. Null if all answers have the same number. */
  readonly longestAnswer: number | null;
  readonly seed: number;
  readonly schedule: ScheduleOptions;
  /** Returns 1 for actions that carry the loss in this iteration, else 0. */
  readonly trained: (iteration: number, prompt: P, answer: A) => Float32Array;
  /** A larger difference between the log-probabilities of rollout and training raises an alarm. */
  readonly mismatchAlarm: number;
  /**
   * The units that are shuffled into minibatches: groups, which share the computation of their prompt, or single
   * actions. Default: groups.
   */
  readonly minibatchesOf?: 'groups' | 'actions';
  /** Maximum importance weight of an action for remotely sampled answers. Null or absent disables this correction. */
  readonly importanceCap?: number | null;
  readonly alarm: (message: string) => void;
}

type Algorithm = UpdateOptions<unknown, Answer>['algorithm'];
type PolicyLoss<S> = S extends { readonly policy: 'likelihood' } ? never : S extends unknown ? Omit<S, 'kl'> : never;

/** The loss of each surrogate if an iteration takes several steps. */
const LOSSES: Readonly<Record<Algorithm['surrogate'], (algorithm: Algorithm) => PolicyLoss<LossSpec>>> = {
  ppo: ({ clip_range: clip, clip_range_high: high }) => ({
    policy: 'ratio',
    clip,
    ...(high === null ? {} : { clipHigh: high }),
  }),
  cispo: ({ clip_range: clip, clip_range_high: high }) => ({
    policy: 'cispo',
    most: 1 + must(high ?? clip, "the largest ratio of 'cispo'"),
  }),
  nft: ({ nft, advantage }) => ({
    policy: 'nft',
    beta: must(nft, "the settings of 'nft'").beta,
    limit: must(advantage?.clip, "the largest advantage of 'nft'"),
  }),
};

/**
 * The loss of the settings. It has no ratio if exactly one step is taken and nothing is clipped, because the ratio is
 * then 1. Ratios of whole answers are part of a linear loss's advantages.
 */
export function lossOf(algorithm: Algorithm): LossSpec {
  const { clip_range: clip, surrogate, ratio, inner_epochs, minibatches } = algorithm;
  const kl = algorithm.kl_coeff > 0 ? { coefficient: algorithm.kl_coeff } : null;
  const isOne = ratio === 'answer' || (clip === null && inner_epochs * minibatches === 1);
  if (isOne && surrogate !== 'nft') return { policy: 'reinforce', kl };
  return { ...LOSSES[surrogate](algorithm), kl };
}

/** The answer ratio of each surrogate. Null if it has none. */
const ANSWER_SURROGATES: Readonly<Record<Algorithm['surrogate'], AnswerRatio['surrogate'] | null>> = {
  ppo: 'ppo',
  cispo: 'cispo',
  nft: null,
};

/** The clipping of whole answers' ratios. Null if actions have their own ratios or none. */
function answerRatio({ ratio, surrogate, clip_range: low, clip_range_high: high }: Algorithm): AnswerRatio | null {
  if (ratio === 'token') return null;
  const range = high ?? low;
  return {
    surrogate: must(ANSWER_SURROGATES[surrogate], "the surrogate of answers' ratios"),
    clip: range === null ? null : { low: low ?? range, high: range },
  };
}

/**
 * Takes `inner_epochs` times `minibatches` optimizer steps on the groups that are not dropped.
 * Old log-probabilities are computed before the first step, under the weights that sampled, and only if a ratio or
 * importance weights need them.
 */
export async function update<P, A extends Answer>(
  iteration: number,
  groups: readonly Group<P, A>[],
  advantages: readonly GroupAdvantages[],
  updater: UpdateOptions<P, A>,
  watch: Stopwatch,
): Promise<Record<string, number>> {
  const { policy, algorithm, schedule, alarm, importanceCap, minibatchesOf: unit = 'groups' } = updater;
  const kept = groups.flatMap((group, i) =>
    advantages[i].dropped ? [] : [{ group, advantages: advantages[i].advantages }],
  );
  if (kept.length === 0) {
    const why = advantages.some(({ zeroSpread }) => zeroSpread)
      ? 'no group has different rewards (zero variance)'
      : 'no group has two scored episodes';
    alarm(`iteration ${iteration}: skipping the update, because ${why}`);
    return { 'group/used': 0 };
  }
  const { inner_epochs, minibatches } = algorithm;
  const loss = lossOf(algorithm);
  const ofAnswers = answerRatio(algorithm);
  const { reads, ofMeans = false } = ruleOf(loss);
  const asksOld = reads.includes('old') || ofMeans || ofAnswers !== null;
  const answered = kept.map(({ group }) => group);
  const reference =
    loss.kl === null ? null : await watch.time('reference', () => policy.statistics(answered, 'reference', answered));
  const hasLogProbs = answered.some(({ answers }) =>
    answers.some((one) => one.logProbs.length > 0 && !lacksLogProbs(one)),
  );
  const importance = hasLogProbs && typeof importanceCap === 'number' ? new ImportanceWeights(importanceCap) : null;
  const old =
    asksOld || importance !== null
      ? await watch.time('reference', () =>
          policy.statistics(answered, updater.sampledBy ?? 'current', answered, ofMeans),
        )
      : null;
  const used = kept.map(({ group, advantages: own }, i): TrainGroup<P, A> => {
    const trained = group.answers.map((answer, g) =>
      own[g] === null ? new Float32Array(answer.logProbs.length) : updater.trained(iteration, group.prompt, answer),
    );
    const factors = old === null ? null : (importance?.of(group, old[i], trained) ?? null);
    return {
      ...group,
      targets: trained.map((weights, g) => ({
        weights: factors === null ? weights : weights.map((weight, t) => weight * factors[g][t]),
        advantages: own[g] ?? 0,
        reference: reference?.[i][g] ?? null,
        old: asksOld ? (old?.[i][g] ?? null) : null,
      })),
    };
  });
  const totals = new UpdateTotals(policy, algorithm);
  const whole: WholeIteration = {
    actions: sum(used.flatMap(trainedActions)),
    minibatches: Math.min(minibatches, used.length),
    longest: updater.longestAnswer,
  };
  let steps = 0;
  const learnFrom = async (trainGroups: readonly TrainGroup<P, A>[]): Promise<LearnReport> => {
    // Before the first step, the current weights are those that sampled.
    const isFirst = steps++ === 0;
    if (ofAnswers === null) return policy.learn(trainGroups, loss, answered);
    const now = isFirst ? trainGroups.map(oldOf) : await policy.statistics(trainGroups, 'current', answered);
    const linear = withAnswerRatios(trainGroups, now, ofAnswers);
    const report = await policy.learn(linear.trainGroups, loss, answered);
    return { ...report, loss: report.loss - linear.linear + linear.loss };
  };
  const metrics: Record<string, number> = { 'group/used': used.length };
  await watch.time('update', async () => {
    for (let epoch = 0; epoch < inner_epochs; epoch++) {
      const random = new RandomStream(updater.seed, 'minibatches', iteration, epoch);
      for (const groups of minibatchesBy[unit](used, minibatches, random)) {
        const trainGroups = weighted(groups, algorithm.aggregation, whole);
        const report = await learnFrom(trainGroups);
        totals.add(trainGroups, report, epoch === 0);
        const learningRate = learningRateAt(policy.steps, schedule);
        const { gradNorm, applied } = await policy.step(learningRate);
        if (gradNorm !== null) metrics['policy/grad_norm'] = gradNorm;
        metrics['policy/learning_rate'] = learningRate;
        if (!applied) alarm(`iteration ${iteration}: skipping this step, because the gradient is not finite`);
      }
    }
  });
  const mismatch = logProbMismatch(answered, old ?? totals.first);
  if (importance !== null) {
    // A sampler with another number format always exceeds the mismatch alarm. Importance weights correct for it.
    if (importance.alarm !== null) alarm(`iteration ${iteration}: ${importance.alarm}`);
  } else if (mismatch !== null && mismatch > updater.mismatchAlarm) {
    alarm(`log-probabilities of rollout and training differ by up to ${mismatch.toExponential(1)}`);
  }
  const compared = mismatch === null ? {} : { 'policy/rollout_mismatch': mismatch };
  return { ...metrics, ...totals.metrics(), ...importance?.metrics(), ...compared };
}

type MinibatchMaker = <P, A>(
  used: readonly TrainGroup<P, A>[],
  count: number,
  random: RandomStream,
) => (readonly TrainGroup<P, A>[])[];

/** Splits groups in a seeded order. A single part keeps the order. */
const minibatchesBy: Readonly<Record<NonNullable<UpdateOptions<unknown, Answer>['minibatchesOf']>, MinibatchMaker>> = {
  groups: splitInto,
  actions: (used, count, random) => {
    const places = used.flatMap(({ targets }, i) =>
      targets.flatMap(({ weights }, g) => [...weights].flatMap((weight, t) => (weight === 0 ? [] : [{ i, g, t }]))),
    );
    return splitInto(places, count, random).map((part) => {
      const own = used.map(({ targets }) => targets.map(({ weights }) => new Float32Array(weights.length)));
      for (const { i, g, t } of part) own[i][g][t] = used[i].targets[g].weights[t];
      return used
        .map((group, i) => ({ ...group, targets: group.targets.map((one, g) => ({ ...one, weights: own[i][g] })) }))
        .filter((group) => sum(trainedActions(group)) > 0);
    });
  },
};

/** At most `count` parts, none of them empty. */
function splitInto<T>(all: readonly T[], count: number, random: RandomStream): T[][] {
  const order = count === 1 ? all : random.shuffled(all);
  return Array.from({ length: count }, (_, rank) => {
    const { start, end } = shareOf(order.length, { rank, size: count });
    return order.slice(start, end);
  }).filter((part) => part.length > 0);
}

/** Adds weights: the loss of a minibatch is divided according to the aggregation. */
function weighted<P, A>(
  groups: readonly TrainGroup<P, A>[],
  aggregation: Aggregation,
  iteration: WholeIteration,
): TrainGroup<P, A>[] {
  const shares = actionWeights(aggregation, groups.map(trainedActions), iteration);
  return groups.map((group, i) => ({
    ...group,
    targets: group.targets.map((one, g) => ({ ...one, weights: one.weights.map((w) => w * shares[i][g]) })),
  }));
}

/** Number of actions that carry the loss, for each answer. */
function trainedActions({ targets }: TrainGroup<unknown, unknown>): number[] {
  return targets.map(({ weights }) => weights.reduce((count, weight) => count + (weight === 0 ? 0 : 1), 0));
}

/** Statistics under the weights that sampled. Raises InternalError if they were not computed. */
function oldOf({ targets }: TrainGroup<unknown, unknown>): Statistics[] {
  return targets.map(({ old }) => must(old, 'statistics of the weights that sampled'));
}

function sum(values: Float32Array | readonly number[]): number {
  let total = 0;
  for (const value of values) total += value;
  return total;
}

export type Aggregation = GrpoSettings['aggregation'];

/** The iteration that a minibatch belongs to. */
export interface WholeIteration {
  /** Number of trained actions in the iteration. */
  readonly actions: number;
  readonly minibatches: number;
  /** Maximum number of actions of an answer. Null if all answers have the same number. */
  readonly longest: number | null;
}

/**
 * Returns the weight of a trained action in an answer with `own` trained actions. `actions` and `answers` count the
 * minibatch's trained actions and the answers that have any.
 */
type WeightRule = (
  own: number,
  minibatch: { readonly actions: number; readonly answers: number },
  iteration: WholeIteration,
) => number;

/**
 * - token: the mean over all trained actions of the minibatch.
 * - answer: the mean over each answer, then over the answers (Shao et al., "DeepSeekMath", 2024, arXiv 2402.03300,
 *   equation 3).
 * - dr_grpo: the sum over answers and actions, divided by a constant. Long answers then weigh as much per action as
 *   short ones in every minibatch (Liu et al., "Understanding R1-Zero-Like Training", 2025, arXiv 2503.20783).
 * - dapo: the sum over the minibatch, divided by the mean number of actions in the iteration's minibatches (Yu et al.,
 *   "DAPO", 2025, arXiv 2503.14476).
 */
const rules: Readonly<Record<Aggregation, WeightRule>> = {
  token: (_own, { actions }) => 1 / actions,
  answer: (own, { answers }) => 1 / (own * answers),
  dr_grpo: (own, { answers }, { longest }) => 1 / ((longest ?? own) * answers),
  dapo: (_own, _minibatch, { actions, minibatches }) => minibatches / actions,
};

/**
 * The weight of each answer's trained actions, given the numbers of trained actions by group and answer. 0 for an
 * answer without any.
 */
export function actionWeights(
  aggregation: Aggregation,
  trained: readonly (readonly number[])[],
  iteration: WholeIteration,
): number[][] {
  const all = trained.flat();
  const minibatch = {
    actions: all.reduce((sum, own) => sum + own, 0),
    answers: all.filter((own) => own > 0).length,
  };
  return trained.map((group) => group.map((own) => (own === 0 ? 0 : rules[aggregation](own, minibatch, iteration))));
}

/** The learning-rate schedule of a run. */
export function scheduleOf(settings: TrainedSettings): ScheduleOptions {
  const { optimizer, algorithm } = settings;
  const { schedule, learning_rate: learningRate, min_learning_rate_ratio } = optimizer;
  const warmup = { learningRate, warmupSteps: algorithm.warmup_steps };
  if (schedule === 'constant') return { ...warmup, schedule };
  return {
    ...warmup,
    schedule,
    totalSteps: optimizerSteps(settings),
    floor: learningRate * min_learning_rate_ratio,
  };
}
