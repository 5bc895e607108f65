/** A token policy as recipes see it, wherever it is trained. */
import type { Policy, Statistics, WeightsOf, SampleRequest } from '../policy.js';
import type { TokenAnswer, TokenRequest } from './batch.js';
import type { TokenPrompt } from '../../../models/tokenizer/format.js';
import type { HiddenStates, StatesRequest } from './hidden_states.js';
import type { TokenSampling } from './sampling.js';
import type { CheckpointFiles } from '../../../models/files.js';

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

/** Weights under which to sample answers. */
export interface PublishedWeights {
  /** The number of optimizer steps taken, and which of the weights. */
  readonly steps: number;
  readonly of: Exclude<WeightsOf, 'reference'>;
  /** The folder of an adapter in PEFT's layout, or of all weights; views of them, to be read before the next step. */
  readonly files: () => CheckpointFiles;
}

export interface RemoteSampler<P extends TokenPrompt = TokenPrompt> {
  /** Called on every rank before answers are sampled under new weights. */
  publish(weights: PublishedWeights): Promise<void>;
  /** Samples under the weights that were published last. */
  sample(request: SampleRequest<TokenRequest<P>, TokenSampling>): Promise<TokenAnswer[][]>;
  /** Called on every rank: stores the answers received since. */
  keep(): Promise<void>;
  dispose(): Promise<void>;
}
