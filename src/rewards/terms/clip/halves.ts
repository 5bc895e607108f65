/** The two halves of a model that compares texts with pictures, computed from the checkpoint's own weights. */
import { FrozenGraph } from '../../../compute/onnx/frozen_graph.js';
import { type ModelFileOptions } from '../../../compute/onnx/model_file.js';
import { openImageHalf, openTextHalf, IMAGE_INPUT, TEXT_INPUT } from '../../../models/networks/clip.js';
import type { TextTokens } from './tokenizer.js';

/** A picture's pixels: axes [3, height, width]. */
export interface Pixels {
  readonly data: Float32Array;
  readonly height: number;
  readonly width: number;
}

/** Both halves. Their embeddings are not normalized. They raise EngineError if a half refuses to run. */
export class Halves {
  private constructor(
    private readonly textHalf: FrozenGraph<'embedding'>,
    private readonly pictureHalf: FrozenGraph<'embedding'>,
  ) {}

  /** For texts of `length` tokens. Raises CheckpointError as `openTextHalf` does, EngineError as `FrozenGraph`. */
  static async open(folder: string, length: number, options: ModelFileOptions): Promise<Halves> {
    // One half after the other: the first one's weights are with its session before the second one's are read.
    const text = await FrozenGraph.open(openTextHalf(folder, length), options);
    try {
      return new Halves(text, await FrozenGraph.open(openImageHalf(folder), options));
    } catch (error) {
      await text.dispose();
      throw error;
    }
  }

  async text({ ids }: TextTokens): Promise<Float32Array> {
    return (await this.textHalf.run({ [TEXT_INPUT]: ids })).embedding;
  }

  async picture({ data }: Pixels): Promise<Float32Array> {
    return (await this.pictureHalf.run({ [IMAGE_INPUT]: data })).embedding;
  }

  async close(): Promise<void> {
    await this.textHalf.dispose();
    await this.pictureHalf.dispose();
  }
}
