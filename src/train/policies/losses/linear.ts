/**
 * The value of a loss and its derivatives with respect to given log-probabilities.
 * A trainer that does not build our graph gets these derivatives. At the weights of the derivatives, a loss that is
 * linear in the log-probabilities has the same gradient.
 */
import { InternalError, must } from '../../../core/errors.js';
import { KL_EXPONENT_LIMIT } from '../../../compute/nets/losses.js';
import type { Target } from '../policy.js';
import type { LossInput } from './loss.js';
import { ruleOf, type LossSpec } from './table.js';

/** The contribution of one answer to the loss. Arrays have one entry per action. */
export interface LinearLoss {
  readonly loss: number;
  /** Minus the derivative of the loss with respect to each log-probability. */
  readonly push: Float32Array;
  /** Number of actions whose KL term was too large and was clamped. */
  readonly klClamped: number;
}

/** The KL estimate of `nets/losses.ts` at d = log p_ref - log p, with its derivative with respect to log p. */
function klAt(d: number): { readonly cost: number; readonly slope: number } {
  const ratio = Math.exp(Math.min(d, KL_EXPONENT_LIMIT));
  return { cost: ratio - d - 1, slope: 1 - (d < KL_EXPONENT_LIMIT ? ratio : 0) };
}

/**
 * Raises InternalError for a target that lacks the loss's inputs, and for a loss that is not a function of
 * log-probabilities.
 */
export function linearLoss(loss: LossSpec, logProbs: Float32Array, target: Target): LinearLoss {
  const rule = ruleOf(loss);
  const kl = loss.kl ?? null;
  const push = new Float32Array(logProbs.length);
  let [sum, klClamped] = [0, 0];
  logProbs.forEach((logProb, t) => {
    const weight = target.weights[t];
    if (weight === 0) return;
    const { gain, slope } = must(
      rule.at?.(loss, logProb, (name) => inputOf[name](target, t)),
      'derivatives of a loss',
    );
    const away = kl === null ? null : referenceOf(target, t) - logProb;
    const term = away === null ? NO_KL : klAt(away);
    const coefficient = kl?.coefficient ?? 0;
    sum += weight * (coefficient * term.cost - gain);
    push[t] = weight * (slope - coefficient * term.slope);
    if (away !== null && away > KL_EXPONENT_LIMIT) klClamped += 1;
  });
  return { loss: sum, push, klClamped };
}

const NO_KL = { cost: 0, slope: 0 };

const inputOf: Readonly<Record<LossInput, (target: Target, t: number) => number>> = {
  advantages: ({ advantages }, t) => (typeof advantages === 'number' ? advantages : advantages[t]),
  old: ({ old }, t) => {
    if (old === null) throw new InternalError('the loss reads old, which a target lacks');
    return old.logProbs[t];
  },
};

function referenceOf({ reference }: Target, t: number): number {
  if (reference === null) throw new InternalError('the loss reads reference, which a target lacks');
  return reference.logProbs[t];
}
