/**
 * PPO's surrogate (Schulman et al., "Proximal Policy Optimization Algorithms", 2017).
 * With the ratio r = p / p_old, the gain is min(r A, clip(r, 1 - c, 1 + c') A), or r A without clipping. c' equals c or
 * is larger (Yu et al., "DAPO", 2025, arXiv 2503.14476).
 */
import { exp, maximum, minimum, mul, sub } from '../../../compute/graph/build.js';
import type { LossRule, WithKl } from './loss.js';

export interface RatioLoss extends WithKl {
  readonly policy: 'ratio';
  /** c. Null disables clipping. */
  readonly clip: number | null;
  /** c'. Absent if it is c. */
  readonly clipHigh?: number;
}

export const ratio: LossRule<RatioLoss> = {
  reads: ['old', 'advantages'],
  gain: ({ clip, clipHigh }, logProbs, input) => {
    const { graph } = logProbs;
    const r = exp(sub(logProbs, input('old')));
    const advantages = input('advantages');
    if (clip === null) return mul(advantages, r);
    const clipped = minimum(maximum(r, graph.scalar(1 - clip)), graph.scalar(1 + (clipHigh ?? clip)));
    return minimum(mul(r, advantages), mul(clipped, advantages));
  },
  at: ({ clip, clipHigh }, logProb, input) => {
    const r = Math.exp(logProb - input('old'));
    const whole = r * input('advantages');
    if (clip === null) return { gain: whole, slope: whole };
    const clipped = Math.min(Math.max(r, 1 - clip), 1 + (clipHigh ?? clip)) * input('advantages');
    // If the clipped value is smaller, it does not depend on the weights.
    return clipped < whole ? { gain: clipped, slope: 0 } : { gain: whole, slope: whole };
  },
};

export interface ReinforceLoss extends WithKl {
  readonly policy: 'reinforce';
}

export const reinforce: LossRule<ReinforceLoss> = {
  reads: ['advantages'],
  gain: (_spec, logProbs, input) => mul(input('advantages'), logProbs),
  at: (_spec, logProb, input) => ({ gain: input('advantages') * logProb, slope: input('advantages') }),
};
