/** Sampling on a server that holds the model and receives what training changes. */
import type { CheckpointFiles } from '../../models/files.js';
import type { SampleRequest, WeightsOf } from '../policy.js';
import type { TokenAnswer, TokenRequest, TokenPrompt } from './batch.js';
import type { TokenSampling } from './rollout.js';

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
