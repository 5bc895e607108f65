/**
 * Ratios of whole answers (GSPO: Zheng et al., "Group Sequence Policy Optimization", 2025, arXiv 2507.18071):
 *
 *   s = exp(mean over the trained actions of log p - log p_old)
 *
 * This ratio replaces the ratio of each action. Its derivative with respect to each of the n log-probabilities is
 * s / n. So at the current weights, the gradient equals the gradient of a loss that is linear in log-probabilities:
 * `reinforce` with the advantages computed here. No graph has to join an answer's actions, and a remote trainer needs no
 * such loss. Pure functions.
 */
import type { Advantages, TrainGroup, Statistics, Target } from './policies/policy.js';

export interface AnswerRatio {
  readonly surrogate: 'ppo' | 'cispo';
  /** Limits of the ratio, 1 - low and 1 + high. Null disables clipping. */
  readonly clip: { readonly low: number; readonly high: number } | null;
}

/** The ratio of an answer, over the actions with a weight other than 0. 1 if there are none. */
export function answerRatioOf(weights: Float32Array, now: Statistics, old: Statistics): number {
  let [sum, count] = [0, 0];
  weights.forEach((weight, t) => {
    if (weight === 0) return;
    sum += now.logProbs[t] - old.logProbs[t];
    count += 1;
  });
  return count === 0 ? 1 : Math.exp(sum / count);
}

/**
 * An action's gain and the factor of its log-probability in the gradient, for its answer's ratio s and its advantage.
 */
function gainAt(s: number, advantage: number, { surrogate, clip }: AnswerRatio): { gain: number; factor: number } {
  const whole = s * advantage;
  if (clip === null) return { gain: whole, factor: whole };
  if (surrogate === 'cispo') {
    const factor = Math.min(s, 1 + clip.high) * advantage;
    return { gain: factor, factor };
  }
  const clipped = Math.min(Math.max(s, 1 - clip.low), 1 + clip.high) * advantage;
  return clipped < whole ? { gain: clipped, factor: 0 } : { gain: whole, factor: whole };
}

/** Groups whose linear loss has the gradient of the answers' ratios. */
export interface RatioGroups<P, A> {
  readonly trainGroups: readonly TrainGroup<P, A>[];
  /** The loss without KL: -sum_a w_a gain_a. */
  readonly loss: number;
  /** The linear loss without KL: -sum_a w_a A'_a log p_a, with the advantages A' in `trainGroups`. */
  readonly linear: number;
}

/**
 * Replaces the groups' advantages. `now` contains statistics of the answers under the current weights. Every target
 * needs old statistics.
 */
export function withAnswerRatios<P, A>(
  trainGroups: readonly TrainGroup<P, A>[],
  now: readonly (readonly Statistics[])[],
  settings: AnswerRatio,
): RatioGroups<P, A> {
  let [loss, linear] = [0, 0];
  const changed = (target: Target, current: Statistics): Target => {
    const { weights, advantages, old } = target;
    if (old === null) return target;
    const s = answerRatioOf(weights, current, old);
    const factors = new Float32Array(weights.length);
    weights.forEach((weight, t) => {
      if (weight === 0) return;
      const { gain, factor } = gainAt(s, advantageOf(advantages, t), settings);
      factors[t] = factor;
      loss -= weight * gain;
      linear -= weight * factor * current.logProbs[t];
    });
    return { ...target, advantages: factors };
  };
  return {
    trainGroups: trainGroups.map((trainGroup, i) => ({
      ...trainGroup,
      targets: trainGroup.targets.map((target, g) => changed(target, now[i][g])),
    })),
    loss,
    linear,
  };
}

function advantageOf(advantages: Advantages, t: number): number {
  return typeof advantages === 'number' ? advantages : advantages[t];
}
