/** The interface of token policies for recipes, trained in this process or on a server. */
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
  /** Hidden states of prompts and their answers under these weights. Requires `capabilities.hiddenStates`. */
  read(items: readonly StatesRequest[], of: WeightsOf): Promise<HiddenStates[]>;
}

/** Per token, in nats: exp(d) - d - 1 with d = log p_ref - log p (k3 of Schulman, "Approximating KL Divergence", 2020). */
export function estimatedDivergence(now: Statistics, reference: Statistics): Float64Array {
  return Float64Array.from(now.logProbs, (logProb, t) => {
    const d = reference.logProbs[t] - logProb;
    return Math.exp(d) - d - 1;
  });
}

/** Weights for sampling. */
export interface PublishedWeights {
  /** The number of optimizer steps taken, and the kind of weights. */
  readonly steps: number;
  readonly of: Exclude<WeightsOf, 'reference'>;
  /**
   * The folder of an adapter in PEFT's layout, or of all weights. Contains views of the weights, so read it before the
   * next step.
   */
  readonly files: () => CheckpointFiles;
}

export interface RemoteSampler<P extends TokenPrompt = TokenPrompt> {
  /** Sends new weights. Called on every rank before answers are sampled under them. */
  publish(weights: PublishedWeights): Promise<void>;
  /** Samples under the last published weights. */
  sample(request: SampleRequest<TokenRequest<P>, TokenSampling>): Promise<TokenAnswer[][]>;
  /** Stores answers received since the last call. Called on every rank. */
  keep(): Promise<void>;
  dispose(): Promise<void>;
}
