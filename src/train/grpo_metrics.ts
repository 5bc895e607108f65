/** Metrics of a GRPO iteration: outcomes, answers and the update. */
import { average } from '../core/statistics.js';
import type { GrpoSettings } from '../config/schema/algorithm.js';
import type { Answer, Group, LearnReport, TrainGroup, Policy, Statistics } from './policies/policy.js';
import type { Outcome } from '../rewards/score/types.js';
import { rewardOf, scoreParts } from './scoring/outcomes.js';
import { answerRatioOf } from './answer_ratio.js';
import { lacksLogProbs } from './importance.js';
import type { GroupAdvantages } from './advantages.js';

/** `reward/mean`, the mean of every part, the share of zeros by rule, and the number of unscored answers by reason. */
export function outcomeMetrics(outcomes: readonly Outcome[]): Record<string, number> {
  const rewards = outcomes.map(rewardOf).filter((reward) => reward !== null);
  const metrics: Record<string, number> = { 'reward/mean': average(rewards) };
  for (const [part, values] of scoreParts(outcomes)) metrics[`reward/${part}`] = average(values);
  metrics['reward/zero_by_rule'] = outcomes.filter(({ kind }) => kind === 'zero_by_rule').length / outcomes.length;
  for (const outcome of outcomes) {
    if (outcome.kind !== 'unscored') continue;
    const name = `reward/unscored/${outcome.reason}`;
    metrics[name] = (metrics[name] ?? 0) + 1;
  }
  return metrics;
}

/** Whether the context cut an answer: it has neither ended nor reached `longest`, the maximum number of actions. */
export function isCutByContext({ finished, logProbs }: Answer, longest: number): boolean {
  return !finished && logProbs.length < longest;
}

/**
 * Length of the answers, the number that did not end before a limit, and the numbers of groups with zero variance and
 * of dropped groups. If answers have a maximum number of actions, `longest`, also the number that the context cut
 * before.
 */
export function episodeMetrics(
  groups: readonly { readonly answers: readonly Answer[] }[],
  advantages: readonly GroupAdvantages[],
  longest: number | null = null,
): Record<string, number> {
  const answers = groups.flatMap((group) => group.answers);
  return {
    'episode/length': average(answers.map(({ logProbs }) => logProbs.length)),
    'episode/non_stop_rate': average(answers.map(({ finished }) => (finished ? 0 : 1))),
    ...(longest === null
      ? {}
      : { 'episode/cut_by_context': average(answers.map((answer) => (isCutByContext(answer, longest) ? 1 : 0))) }),
    'group/zero_spread': average(advantages.map(({ zeroSpread }) => (zeroSpread ? 1 : 0))),
    'group/dropped': average(advantages.map(({ dropped }) => (dropped ? 1 : 0))),
  };
}

/**
 * The largest difference between log-probabilities of rollout and training under the weights that sampled. Null if no
 * answer has log-probabilities.
 */
export function logProbMismatch(
  groups: readonly Group<unknown, Answer>[],
  statistics: readonly (readonly Statistics[])[],
): number | null {
  let mismatch: number | null = null;
  groups.forEach(({ answers }, i) =>
    answers.forEach((answer, g) => {
      if (lacksLogProbs(answer)) return;
      const { logProbs } = answer;
      const found = statistics[i][g].logProbs;
      logProbs.forEach((logProb, t) => (mismatch = Math.max(mismatch ?? 0, Math.abs(found[t] - logProb))));
    }),
  );
  return mismatch;
}

type ClipSettings = Pick<GrpoSettings, 'clip_range' | 'clip_range_high' | 'ratio' | 'surrogate'>;

/** A range of ratios. */
interface Range {
  readonly least: number;
  readonly most: number;
}

/**
 * Aggregates the reports of an iteration's steps over the actions that carry the loss, weighted like the loss.
 * Loss, KL to the reference (in nats per action) and entropy are of the first epoch. The ratio to the weights that
 * sampled, the divergence from them and the number of clamped KL terms cover all steps.
 */
export class UpdateTotals {
  /**
   * Statistics of the first step. They belong to the weights that sampled if the first step learns from all groups in
   * order.
   */
  first: readonly (readonly Statistics[])[] = [];
  #losses: number[] = [];
  #weight = 0;
  #kl: number | null = null;
  #entropy: number | null = null;
  #klClamped = 0;
  readonly #range: Range | null;
  readonly #ratios = { count: 0, sum: 0, largest: 0, clipped: 0 };
  readonly #moved = { count: 0, sum: 0 };

  constructor(
    private readonly policy: Pick<Policy<never, Answer, never>, 'divergence'>,
    private readonly algorithm: ClipSettings,
  ) {
    this.#range = unclippedRange(algorithm);
  }

  add(
    trainGroups: readonly TrainGroup<unknown, unknown>[],
    { loss, statistics, klClamped }: LearnReport,
    isFirstEpoch: boolean,
  ): void {
    this.#klClamped += klClamped;
    if (this.#losses.length === 0) this.first = statistics;
    if (isFirstEpoch) this.#losses.push(loss);
    trainGroups.forEach(({ targets }, i) =>
      targets.forEach(({ weights, reference, old }, g) => {
        const now = statistics[i][g];
        if (isFirstEpoch) {
          weights.forEach((w) => (this.#weight += w));
          if (reference !== null) this.#kl = addWeighted(this.#kl, weights, this.policy.divergence(now, reference));
          if (now.entropy !== undefined) this.#entropy = addWeighted(this.#entropy, weights, now.entropy);
        }
        if (old !== null) this.#addRatios(weights, now, old);
        if (old !== null && now.moved !== undefined) this.#addMoved(weights, now.moved);
      }),
    );
  }

  metrics(): Record<string, number> {
    const { count, sum, largest, clipped } = this.#ratios;
    const moved = this.#moved;
    return {
      // If no action carries the loss, nothing was learned and there is no loss.
      ...(this.#losses.length === 0 ? {} : { 'policy/loss': average(this.#losses) }),
      ...(this.#kl === null || this.#weight === 0
        ? {}
        : { 'policy/kl': this.#kl / this.#weight, 'policy/kl_clamped': this.#klClamped }),
      ...(this.#entropy === null || this.#weight === 0 ? {} : { 'policy/entropy': this.#entropy / this.#weight }),
      ...(count === 0 ? {} : { 'policy/ratio_mean': sum / count, 'policy/ratio_max': largest }),
      ...(count === 0 || this.#range === null ? {} : { 'policy/ratio_clipped': clipped / count }),
      ...(moved.count === 0 ? {} : { 'policy/moved': moved.sum / moved.count }),
    };
  }

  #addRatios(weights: Float32Array, now: Statistics, old: Statistics): void {
    if (this.algorithm.surrogate === 'nft') return;
    if (this.algorithm.ratio === 'answer') {
      if (weights.some((w) => w !== 0)) this.#addRatio(answerRatioOf(weights, now, old));
      return;
    }
    weights.forEach((w, t) => {
      if (w !== 0) this.#addRatio(Math.exp(now.logProbs[t] - old.logProbs[t]));
    });
  }

  /** Adds the actions' divergence from the weights that sampled. */
  #addMoved(weights: Float32Array, moved: Float32Array): void {
    weights.forEach((w, t) => {
      if (w === 0) return;
      this.#moved.count += 1;
      this.#moved.sum += moved[t];
    });
  }

  #addRatio(ratio: number): void {
    const [ratios, range] = [this.#ratios, this.#range];
    ratios.count += 1;
    ratios.sum += ratio;
    ratios.largest = Math.max(ratios.largest, ratio);
    if (range !== null && (ratio < range.least || ratio > range.most)) ratios.clipped += 1;
  }
}

/** Whether each surrogate also clips ratios below 1. */
const CLIPS_BELOW: Readonly<Record<ClipSettings['surrogate'], boolean>> = { ppo: true, cispo: false, nft: false };

/** The range of ratios that are not clipped. Null without clipping. */
function unclippedRange({ clip_range: low, clip_range_high: high, surrogate }: ClipSettings): Range | null {
  const range = high ?? low;
  if (range === null) return null;
  return { least: CLIPS_BELOW[surrogate] ? 1 - (low ?? range) : 0, most: 1 + range };
}

function addWeighted(total: number | null, weights: Float32Array, values: Float32Array | Float64Array): number {
  let sum = total ?? 0;
  weights.forEach((w, t) => (sum += w * values[t]));
  return sum;
}

export type Phase = 'rollout' | 'render' | 'judge' | 'exchange' | 'reference' | 'update';

/** Adds up the seconds of each phase. The rest is `other`. */
export class Stopwatch {
  readonly #start = performance.now();
  readonly #seconds: Record<Phase, number> = { rollout: 0, render: 0, judge: 0, exchange: 0, reference: 0, update: 0 };

  async time<T>(phase: Phase, work: () => Promise<T>): Promise<T> {
    const start = performance.now();
    try {
      return await work();
    } finally {
      this.#seconds[phase] += (performance.now() - start) / 1000;
    }
  }

  /** Seconds since construction. */
  elapsed(): number {
    return (performance.now() - this.#start) / 1000;
  }

  /** `time/<phase>`, `time/other` and `time/total` in seconds. */
  times(): Record<string, number> {
    const total = this.elapsed();
    const phases = Object.entries(this.#seconds);
    const claimed = phases.reduce((sum, [, seconds]) => sum + seconds, 0);
    return {
      'time/total': total,
      ...Object.fromEntries(phases.map(([phase, seconds]) => [`time/${phase}`, seconds])),
      'time/other': total - claimed,
    };
  }
}
