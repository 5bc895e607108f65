/** REINFORCE (Williams, 1992): the gain is A log p. With exactly one step its gradient equals the ratio loss's, since the ratio is 1 then. */
import { mul } from '../../graph/build.js';
import type { LossRule, WithKl } from './loss.js';

export interface ReinforceLoss extends WithKl {
  readonly policy: 'reinforce';
}

export const reinforce: LossRule<ReinforceLoss> = {
  reads: ['advantages'],
  gain: (_spec, logProbs, input) => mul(input('advantages'), logProbs),
  at: (_spec, logProb, input) => ({ gain: input('advantages') * logProb, slope: input('advantages') }),
};
