/** Sampling on a server that holds the model, and is brought what training changes of it. */
import type { CheckpointFiles } from '../../models/files.js';
import type { SampleRequest, WeightsOf } from '../policy.js';
import type { TokenAnswer, TokenAsked, TokenPrompt } from './batch.js';
import type { TokenSampling } from './rollout.js';

/** Weights that answers are to be sampled under. */
export interface PublishedWeights {
  /** After how many optimizer steps, and which of them. */
  readonly steps: number;
  readonly of: Exclude<WeightsOf, 'reference'>;
  /** The folder of an adapter in PEFT's layout; views of the weights, to be read before the next step. */
  readonly files: () => CheckpointFiles;
}

export interface RemoteSampler<P extends TokenPrompt = TokenPrompt> {
  /** Called on every rank before answers are sampled under other weights than before. */
  publish(weights: PublishedWeights): Promise<void>;
  /** Under the weights that were published last. */
  sample(request: SampleRequest<TokenAsked<P>, TokenSampling>): Promise<TokenAnswer[][]>;
  /** Called on every rank: what came since is stored. */
  keep(): Promise<void>;
  dispose(): Promise<void>;
}
