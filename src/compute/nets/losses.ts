/** Losses over the actions of a batch. All take one row per action and a weight per row, so that micro-batches sum to the whole. */
import { exp, minimum, mul, neg, sub, sumAll } from '../graph/build.js';
import type { Value } from '../graph/ir.js';

/** The maximum of k3's exponent. float32 overflows at e^88. At e^20, the penalty already dominates. */
export const KL_EXPONENT_LIMIT = 20;

/** How the distance to the reference enters a loss. */
export interface KlTerm {
  readonly coefficient: number;
}

/**
 * [N] the cost of the distance to the reference: beta (exp(d) - d - 1) for d = log p_ref - log p. This estimate of
 * KL(policy || reference) per action is unbiased and never negative (k3: Schulman, "Approximating KL Divergence",
 * 2020). The exponent is clamped.
 */
export function klTerm(logProbs: Value, reference: Value, { coefficient }: KlTerm): Value {
  const { graph } = logProbs;
  const d = sub(reference, logProbs);
  const estimate = sub(sub(exp(minimum(d, graph.scalar(KL_EXPONENT_LIMIT))), d), graph.scalar(1));
  return mul(graph.scalar(coefficient), estimate);
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
