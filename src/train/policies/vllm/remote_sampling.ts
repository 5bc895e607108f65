import type { PixelLimits } from '../../../models/images/processor.js';
import type { ModelReference } from '../../../config/schema/model.js';
import type { SamplingEngine } from '../../../config/schema/sampler.js';

/** The server that samples a run's answers, and the model and adapters that it must serve. */
export interface RemoteSampling {
  readonly engine: SamplingEngine;
  readonly model: ModelReference;
  /** Rank of the adapter. Null if all weights train and the server reloads them. */
  readonly rank: number | null;
  /** Whether the adapter has layers of the vision encoder or connector. */
  readonly adaptsVision: boolean;
  /** Limits of the pixels of images that the policy sees. Null without vision. */
  readonly pixelLimits: PixelLimits | null;
  /** Whether answers follow the grammar of image blocks. */
  readonly blocks: boolean;
  readonly contextSize: number;
}
