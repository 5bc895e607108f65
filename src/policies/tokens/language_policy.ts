/** A token policy as recipes see it, wherever it is trained. */
import type { Policy, Statistics, WeightsOf } from '../policy.js';
import type { TokenAnswer, TokenRequest, TokenPrompt } from './batch.js';
import type { HiddenStates, StatesRequest } from './hidden_states.js';
import type { TokenSampling } from './rollout.js';

export interface LanguagePolicy<P extends TokenPrompt = TokenPrompt> extends Policy<
  TokenRequest<P>,
  TokenAnswer,
  TokenSampling
> {
  /** The states of prompts and their answers under these weights; called only if `capabilities.hiddenStates`. */
  read(items: readonly StatesRequest[], of: WeightsOf): Promise<HiddenStates[]>;
}

/** Per token, in nats: exp(d) - d - 1 with d = log p_ref - log p (k3 of Schulman, "Approximating KL Divergence", 2020). */
export function estimatedDivergence(now: Statistics, reference: Statistics): Float64Array {
  return Float64Array.from(now.logProbs, (logProb, t) => {
    const d = reference.logProbs[t] - logProb;
    return Math.exp(d) - d - 1;
  });
}
