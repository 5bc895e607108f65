/**
 * CISPO (MiniMax, "MiniMax-M1", 2025, arXiv 2506.13585): REINFORCE with truncated importance weights, min(r, m) A log
 * p, in which the weight has no gradient.
 * Implemented as A (min(r, m) + m max(0, log r - log m)), which has the same gradient, and the value r A up to m.
 */
import { add, exp, maximum, minimum, mul, sub } from '../../../compute/graph/build.js';
import type { LossRule, WithKl } from './loss.js';

export interface CispoLoss extends WithKl {
  readonly policy: 'cispo';
  /** m, the maximum of the ratio r = p / p_old. */
  readonly most: number;
}

export const cispo: LossRule<CispoLoss> = {
  reads: ['old', 'advantages'],
  gain: ({ most }, logProbs, input) => {
    const { graph } = logProbs;
    const logRatio = sub(logProbs, input('old'));
    const beyond = maximum(sub(logRatio, graph.scalar(Math.log(most))), graph.scalar(0));
    const weight = minimum(exp(logRatio), graph.scalar(most));
    return mul(input('advantages'), add(weight, mul(graph.scalar(most), beyond)));
  },
  at: ({ most }, logProb, input) => {
    const logRatio = logProb - input('old');
    const slope = Math.min(Math.exp(logRatio), most) * input('advantages');
    const beyond = Math.max(0, logRatio - Math.log(most));
    return { gain: slope + most * beyond * input('advantages'), slope };
  },
};
