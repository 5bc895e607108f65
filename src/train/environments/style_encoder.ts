/** Encodes style images for an IP-Adapter with the vision half of a CLIP or SigLIP from the Hub. */
import type { RgbImage } from '../../core/images/image.js';
import { FrozenGraph, Lazy } from '../../compute/onnx/frozen_graph.js';
import type { ModelFileOptions } from '../../compute/onnx/model_file.js';
import { checkImageEncoder, openImageEncoder, IMAGE_INPUT, imageEmbeddingWidth } from '../../models/networks/clip.js';
import { preprocess, type Preprocessing, readPreprocessing, requireSide } from '../../rewards/terms/clip/preprocess.js';

/**
 * Opened on first use. Runs on one thread, so that the last bits of features do not depend on the number of threads.
 */
export class StyleEncoder {
  readonly width: number;
  readonly #steps: Preprocessing;
  readonly #model: Lazy<FrozenGraph<'embedding'>>;

  /**
   * Uses CLIP's projection or SigLIP's pooling head as features. Raises CheckpointError for other models, and
   * ConfigError if the preprocessor needs an unsupported step.
   */
  constructor(folder: string, options: ModelFileOptions = {}) {
    const config = checkImageEncoder(folder);
    this.width = imageEmbeddingWidth(config);
    this.#steps = readPreprocessing(folder);
    requireSide(this.#steps, config, folder);
    this.#model = new Lazy(() => FrozenGraph.open(openImageEncoder(folder), { ...options, threads: 1 }));
  }

  /** [width] */
  async encode(image: RgbImage): Promise<Float32Array> {
    const model = await this.#model.get();
    return (await model.run({ [IMAGE_INPUT]: preprocess(image, this.#steps) })).embedding;
  }

  dispose(): Promise<void> {
    return this.#model.dispose();
  }
}
