/** Losses over answer tokens. All take one row per token and a weight per row, so that micro-batches sum to the whole. */
import { exp, maximum, minimum, mul, neg, sub, sumAll } from '../graph/build.js';
import type { Value } from '../graph/ir.js';
import { InternalError } from '../core/errors.js';

/** Weighted negative log-likelihood: -sum_n w_n log p_n. */
export function negativeLogLikelihood(logProbs: Value, weights: Value): Value {
  return neg(sumAll(mul(weights, logProbs)));
}

/** Estimates KL(policy || reference) per token from d = log p_ref - log p, [N] to [N] (Schulman, "Approximating KL Divergence", 2020). */
const KL_ESTIMATORS = {
  /** -d: unbiased, may be negative; its gradient is zero in expectation. */
  k1: (d: Value): Value => neg(d),
  /** d^2 / 2: biased, never negative. */
  k2: (d: Value): Value => mul(mul(d, d), d.graph.scalar(0.5)),
  /** exp(d) - d - 1: unbiased, never negative. */
  k3: (d: Value): Value => sub(sub(exp(d), d), d.graph.scalar(1)),
} as const;

export type KlEstimator = keyof typeof KL_ESTIMATORS;

export interface GrpoTerms {
  /** [N] log p of the policy being trained. */
  readonly logProbs: Value;
  /** [N] log p of the policy that sampled, from this same graph; null where the ratio is 1 by construction. */
  readonly oldLogProbs: Value | null;
  /** [N] log p of the frozen reference; null without a KL term. */
  readonly reference: Value | null;
  /** [N] */
  readonly advantages: Value;
  /** [N] 1 / (all response tokens of the iteration) on trained tokens, else 0. */
  readonly weights: Value;
}

/** A scalar loss and [N] diagnostics that carry no gradient of their own. */
export interface GrpoLoss {
  readonly loss: Value;
  readonly kl: Value | null;
  readonly ratio: Value | null;
}

/**
 * EARL's GRPO loss: sum_n w_n (-A_n log p_n + beta KL_n), EARL's KL estimator being k3. With old log-probabilities the first term is PPO's clipped surrogate
 * (Schulman et al., 2017) -min(ratio A, clip(ratio, 1 - c, 1 + c) A), or the plain ratio where `clipRange` is null.
 */
export function grpoLoss(
  terms: GrpoTerms,
  klCoeff: number,
  clipRange: number | null,
  klEstimator: KlEstimator = 'k3',
): GrpoLoss {
  const { logProbs, oldLogProbs, reference, advantages, weights } = terms;
  const { graph } = logProbs;
  const ratio = oldLogProbs === null ? null : exp(sub(logProbs, oldLogProbs));
  let policy: Value;
  if (ratio === null) {
    if (clipRange !== null) throw new InternalError('a clip range needs old log-probabilities');
    policy = mul(advantages, logProbs);
  } else if (clipRange === null) policy = mul(advantages, ratio);
  else {
    const clipped = minimum(maximum(ratio, graph.scalar(1 - clipRange)), graph.scalar(1 + clipRange));
    policy = minimum(mul(ratio, advantages), mul(clipped, advantages));
  }
  const kl = reference === null ? null : KL_ESTIMATORS[klEstimator](sub(reference, logProbs));
  const perToken = kl === null ? neg(policy) : sub(mul(graph.scalar(klCoeff), kl), policy);
  return { loss: sumAll(mul(weights, perToken)), kl, ratio };
}

/** Mean squared error over all elements. */
export function meanSquaredError(a: Value, b: Value): Value {
  const difference = sub(a, b);
  return mul(sumAll(mul(difference, difference)), a.graph.scalar(1 / a.size));
}
