/** Maximum likelihood, for supervised training: the gain is log p. */
import type { LossRule } from './loss.js';

export interface LikelihoodLoss {
  readonly policy: 'likelihood';
  /** Supervised training has no KL to the starting weights. */
  readonly kl?: null;
}

export const likelihood: LossRule<LikelihoodLoss> = {
  reads: [],
  gain: (_spec, logProbs) => logProbs,
  at: (_spec, logProb) => ({ gain: logProb, slope: 1 }),
};
