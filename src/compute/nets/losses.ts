/** Losses over the actions of a batch. All take one row per action and a weight per row, so that micro-batches sum to the whole. */
import { exp, minimum, mul, neg, sub, sumAll } from '../graph/build.js';
import type { Value } from '../graph/ir.js';

/** k3's exponent at most: a policy that gives an action e^-20 of the reference's probability is held back by e^20 already, and float32 ends at e^88. */
export const KL_EXPONENT_LIMIT = 20;

/** Estimates KL(policy || reference) per action from d = log p_ref - log p, [N] to [N] (Schulman, "Approximating KL Divergence", 2020). */
const KL_ESTIMATORS = {
  /** d^2 / 2: biased, never negative. */
  k2: (d: Value): Value => mul(mul(d, d), d.graph.scalar(0.5)),
  /** exp(d) - d - 1: unbiased, never negative; the exponent is clamped. */
  k3: (d: Value): Value => sub(sub(exp(minimum(d, d.graph.scalar(KL_EXPONENT_LIMIT))), d), d.graph.scalar(1)),
} as const;

/** How the distance to the reference enters a loss. */
export interface KlTerm {
  readonly coefficient: number;
  /** Ignored where the divergence has a closed form. */
  readonly estimator: keyof typeof KL_ESTIMATORS;
}

/** [N] the cost of the distance to the reference: beta KL. */
export function klTerm(logProbs: Value, reference: Value, { coefficient, estimator }: KlTerm): Value {
  return mul(logProbs.graph.scalar(coefficient), KL_ESTIMATORS[estimator](sub(reference, logProbs)));
}

/** sum_n w_n (cost_n - gain_n), a scalar. */
export function weightedLoss(weights: Value, gain: Value, cost: Value | null): Value {
  return sumAll(mul(weights, cost === null ? neg(gain) : sub(cost, gain)));
}

/** Mean squared error over all elements. */
export function meanSquaredError(a: Value, b: Value): Value {
  const difference = sub(a, b);
  return mul(sumAll(mul(difference, difference)), a.graph.scalar(1 / a.size));
}
