/**
 * Flow-DPPO (2026, arXiv 2606.11025): the ratio loss r A with a mask in place of a clip range. An action is left out where its Gaussian has moved by d
 * or more from that of the weights that sampled, and where following A would move it on: A > 0 and r > 1, or A < 0 and r < 1. The divergence is
 *
 *   KL = mean((m - m_old)^2) / (2 s^2)
 *
 * over the elements of the action, s its own standard deviation: an average like the log-probabilities.
 */
import { must } from '../../core/errors.js';
import { exp, greater, less, mul, sub, where } from '../../graph/build.js';
import type { LossRule, WithKl } from './loss.js';

export interface DppoLoss extends WithKl {
  readonly policy: 'dppo';
  /** d, in nats per element. */
  readonly limit: number;
}

export const dppo: LossRule<DppoLoss> = {
  reads: ['old', 'advantages'],
  ofMeans: true,
  gain: ({ limit }, logProbs, input, gaussians) => {
    const { graph } = logProbs;
    const { moved } = must(gaussians, 'the means of the actions');
    const advantages = input('advantages');
    const logRatio = sub(logProbs, input('old'));
    const whole = mul(advantages, exp(logRatio));
    const movesOn = greater(mul(advantages, logRatio), graph.scalar(0));
    return where(less(moved, graph.scalar(limit)), whole, where(movesOn, graph.scalar(0), whole));
  },
};

/** Whether the mask leaves an action out, from its values in the training graph, which are float32. */
export function isMasked(limit: number, action: Readonly<Record<'logRatio' | 'advantage' | 'moved', number>>): boolean {
  return action.moved >= Math.fround(limit) && action.advantage * action.logRatio > 0;
}
