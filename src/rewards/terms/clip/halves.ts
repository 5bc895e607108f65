/** The two halves of a model that compares texts with pictures, computed from the checkpoint's own weights. */
import { FrozenGraph } from '../../../compute/onnx/frozen_graph.js';
import { type ModelFileOptions } from '../../../compute/onnx/model_file.js';
import {
  openPictureHalf,
  openTextHalf,
  PICTURE_INPUT,
  TEXT_INPUT,
  type OpenedHalf,
} from '../../../models/networks/clip.js';
import type { TextTokens } from './tokenizer.js';

/** A picture's pixels: axes [3, height, width]. */
export interface Pixels {
  readonly data: Float32Array;
  readonly height: number;
  readonly width: number;
}

/** One half. */
export class ComputedHalf {
  private constructor(private readonly half: FrozenGraph<'embedding'>) {}

  /** Takes the weights over, and raises, as `FrozenGraph.open` does. */
  static async open({ graph, embedding, weights }: OpenedHalf, options: ModelFileOptions): Promise<ComputedHalf> {
    return new ComputedHalf(await FrozenGraph.open({ graph, outputs: { embedding }, weights }, options));
  }

  /** Raises EngineError where the provider fails. */
  async run(feeds: Readonly<Record<string, Float32Array | BigInt64Array>>): Promise<Float32Array> {
    return (await this.half.run(feeds)).embedding;
  }

  dispose(): Promise<void> {
    return this.half.dispose();
  }
}

/** Both halves. Their embeddings are not normalized. They raise EngineError if a half refuses to run. */
export class Halves {
  private constructor(
    private readonly textHalf: ComputedHalf,
    private readonly pictureHalf: ComputedHalf,
  ) {}

  /** For texts of `length` tokens. Raises CheckpointError as `openTextHalf` does, EngineError as `ComputedHalf`. */
  static async open(folder: string, length: number, options: ModelFileOptions): Promise<Halves> {
    // One half after the other: the first one's weights are with its session before the second one's are read.
    const text = await ComputedHalf.open(openTextHalf(folder, length), options);
    try {
      return new Halves(text, await ComputedHalf.open(openPictureHalf(folder), options));
    } catch (error) {
      await text.dispose();
      throw error;
    }
  }

  text({ ids }: TextTokens): Promise<Float32Array> {
    return this.textHalf.run({ [TEXT_INPUT]: ids });
  }

  picture({ data }: Pixels): Promise<Float32Array> {
    return this.pictureHalf.run({ [PICTURE_INPUT]: data });
  }

  async close(): Promise<void> {
    await this.textHalf.dispose();
    await this.pictureHalf.dispose();
  }
}
