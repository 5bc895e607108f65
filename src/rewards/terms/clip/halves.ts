/**
 * The two halves of a model that compares texts with pictures: as an export to ONNX in the layout of Hugging Face, either one graph of both
 * (`model.onnx`, as optimum-cli writes it) or two (`text_model.onnx`, `vision_model.onnx`), or computed here from the checkpoint's own weights.
 */
import { ConfigError, EngineError } from '../../../core/errors.js';
import { FrozenGraph } from '../../../engines/onnx/frozen_graph.js';
import { ModelFile, type ModelFileOptions, type ModelTensor } from '../../../engines/onnx/model_file.js';
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

/** Both halves. They raise EngineError where a half refuses to run. */
export interface Halves {
  /** Not normalised. */
  text(tokens: TextTokens): Promise<Float32Array>;
  /** Not normalised. */
  picture(pixels: Pixels): Promise<Float32Array>;
  /** Frees the sessions; nothing may be under way. */
  close(): Promise<void>;
}

const INPUTS = ['input_ids', 'attention_mask', 'pixel_values'] as const;
type Input = (typeof INPUTS)[number];
type Feeds = Readonly<Record<Input, ModelTensor>>;
type Embedding = 'text_embeds' | 'image_embeds';

/** What a graph of both halves is given in vain: the shortest text, and a black picture. */
export interface Blanks {
  readonly text: TextTokens;
  readonly pixels: Pixels;
}

export class ExportedHalves implements Halves {
  private constructor(
    private readonly textFile: ModelFile,
    private readonly pictureFile: ModelFile,
    private readonly blanks: Blanks,
  ) {}

  /** Raises ConfigError for graphs of another kind, EngineError where onnxruntime cannot open one. */
  static async open(
    paths: Readonly<Record<'text' | 'vision', string>>,
    blanks: Blanks,
    options: ModelFileOptions,
  ): Promise<ExportedHalves> {
    const picture = await ModelFile.open(paths.vision, options);
    const text = paths.text === paths.vision ? picture : await ModelFile.open(paths.text, options);
    const halves = new ExportedHalves(text, picture, blanks);
    try {
      checkGraph(text, 'text_embeds');
      checkGraph(picture, 'image_embeds');
    } catch (error) {
      await halves.close();
      throw error;
    }
    return halves;
  }

  text(tokens: TextTokens): Promise<Float32Array> {
    return this.#run(this.textFile, 'text_embeds', tokens, this.blanks.pixels);
  }

  picture(pixels: Pixels): Promise<Float32Array> {
    return this.#run(this.pictureFile, 'image_embeds', this.#blankText(), pixels);
  }

  async close(): Promise<void> {
    for (const file of new Set([this.textFile, this.pictureFile])) await file.dispose();
  }

  async #run(file: ModelFile, output: Embedding, { ids, mask }: TextTokens, pixels: Pixels): Promise<Float32Array> {
    const all: Feeds = {
      input_ids: { data: ids, shape: [1, ids.length] },
      attention_mask: { data: mask, shape: [1, mask.length] },
      pixel_values: { data: pixels.data, shape: [1, 3, pixels.height, pixels.width] },
    };
    const outputs = await file.run(Object.fromEntries(file.inputs.map((name) => [name, all[name as Input]])));
    const { data } = outputs[output];
    if (data instanceof Float32Array) return data;
    throw new EngineError(`${output} is not float32`, {
      where: file.file,
      next: 'Take the float32 export, not one of the smaller ones.',
    });
  }

  /** The shortest empty text that the graph accepts: two tokens if its length is free. */
  #blankText(): TextTokens {
    const { ids, mask } = this.blanks.text;
    if (typeof this.pictureFile.shapeOf('input_ids')[1] === 'number') return { ids, mask };
    return { ids: ids.slice(0, 2), mask: mask.slice(0, 2) };
  }
}

function checkGraph(file: ModelFile, output: Embedding): void {
  const odd = file.inputs.filter((name) => !(INPUTS as readonly string[]).includes(name));
  if (odd.length > 0) {
    throw new ConfigError(`the graph takes ${odd.join(' and ')}; a CLIP export takes ${INPUTS.join(', ')}`, {
      where: file.file,
      next: 'Export it with `optimum-cli export onnx --model openai/clip-vit-base-patch32 FOLDER`.',
    });
  }
  if (!file.outputs.includes(output)) {
    throw new ConfigError(`the graph gives ${file.outputs.join(', ')}, but no ${output}`, {
      where: file.file,
      next: 'Export the model with its projections: CLIPModel, CLIPTextModelWithProjection or CLIPVisionModelWithProjection.',
    });
  }
}

/** A half that is computed from a checkpoint's own weights. */
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

export class ComputedHalves implements Halves {
  private constructor(
    private readonly textHalf: ComputedHalf,
    private readonly pictureHalf: ComputedHalf,
  ) {}

  /** For texts of `length` tokens. Raises CheckpointError as `openTextHalf` does, EngineError as `ComputedHalf`. */
  static async open(folder: string, length: number, options: ModelFileOptions): Promise<ComputedHalves> {
    // One half after the other: the first one's weights are with its session before the second one's are read.
    const text = await ComputedHalf.open(openTextHalf(folder, length), options);
    try {
      return new ComputedHalves(text, await ComputedHalf.open(openPictureHalf(folder), options));
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
