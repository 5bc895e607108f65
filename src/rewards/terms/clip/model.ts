/**
 * A CLIP model in the layout of Hugging Face's ONNX exports: `config.json`, the tokenizer's and the preprocessor's files, and either one
 * graph of both halves (`model.onnx`, as optimum-cli writes it) or two (`text_model.onnx`, `vision_model.onnx`), in the folder or its `onnx/`.
 */
import { join } from 'node:path';
import { LRUCache } from 'lru-cache';
import { z } from 'zod';
import { ConfigError, EngineError, InternalError } from '../../../core/errors.js';
import type { RgbImage } from '../../../core/image.js';
import { ModelFile, type ModelFileOptions, type ModelTensor } from '../../../engines/onnx/model_file.js';
import { firstFile, graphsIn, readJson } from './files.js';
import { preprocess, readPreprocessing, type Preprocessing } from './preprocess.js';
import { ClipTokenizer, type TextTokens } from './tokenizer.js';

const INPUTS = ['input_ids', 'attention_mask', 'pixel_values'] as const;
type Input = (typeof INPUTS)[number];
type Feeds = Readonly<Record<Input, ModelTensor>>;
type Embedding = 'text_embeds' | 'image_embeds';

/** Prompts whose embeddings are kept: 4096 of 512 numbers take 8 MB. */
const MOST_KEPT_PROMPTS = 4096;

const clipConfig = z.object({
  model_type: z.literal('clip', 'this folder holds another kind of model; its config.json has to say "clip"'),
  text_config: z
    .object({ max_position_embeddings: z.int().min(3).default(77) })
    .default({ max_position_embeddings: 77 }),
});

/** The tokenizer of a model's folder, limited to the length that the model reads. Raises ConfigError when a file is missing or of another kind. */
export function clipTokenizer(folder: string): ClipTokenizer {
  const { text_config: text } = readJson(firstFile([join(folder, 'config.json')], 'config.json', folder), clipConfig);
  return ClipTokenizer.read(folder, text.max_position_embeddings);
}

export class ClipModel {
  readonly #tokenizer: ClipTokenizer;
  readonly #steps: Preprocessing;
  readonly #text: ModelFile;
  readonly #vision: ModelFile;
  readonly #prompts = new LRUCache<string, Promise<Float32Array>>({ max: MOST_KEPT_PROMPTS });

  private constructor(
    readonly folder: string,
    files: Readonly<Record<'text' | 'vision', ModelFile>>,
  ) {
    this.#tokenizer = clipTokenizer(folder);
    this.#steps = readPreprocessing(folder);
    this.#text = files.text;
    this.#vision = files.vision;
  }

  /**
   * Opens the model and runs it once. Raises ConfigError for a folder that lacks a file or whose files do not fit together, EngineError
   * where onnxruntime cannot open one of them.
   */
  static async open(folder: string, options: ModelFileOptions = {}): Promise<ClipModel> {
    const paths = graphsIn(folder);
    const vision = await ModelFile.open(paths.vision, options);
    const text = paths.text === paths.vision ? vision : await ModelFile.open(paths.text, options);
    try {
      checkGraph(text, 'text_embeds');
      checkGraph(vision, 'image_embeds');
      const model = new ClipModel(folder, { text, vision });
      await model.#tryOut();
      return model;
    } catch (error) {
      for (const file of new Set([text, vision])) await file.dispose();
      throw error;
    }
  }

  /** The number of tokens that the model reads at most, and how many of this text it cuts. */
  async reads(prompt: string): Promise<{ readonly most: number; readonly unread: number }> {
    return { most: this.#tokenizer.context, unread: await this.#tokenizer.unread(prompt) };
  }

  /** The projection of a text, not normalised; each prompt is computed once. Raises EngineError where the model refuses to run. */
  textEmbedding(prompt: string): Promise<Float32Array> {
    const known = this.#prompts.get(prompt);
    if (known !== undefined) return known;
    const embedding = this.#tokenizer.encode(prompt).then((tokens) => this.#run(this.#text, 'text_embeds', { tokens }));
    this.#prompts.set(prompt, embedding);
    // A failure is not cached: the next call tries again.
    embedding.catch(() => this.#prompts.delete(prompt));
    return embedding;
  }

  /**
   * The projection of an image, not normalised. One image to a run: in a batch the last bits of a result depend on its company, and an
   * episode's score must not. Raises EngineError where the model refuses to run.
   */
  imageEmbedding(image: RgbImage): Promise<Float32Array> {
    return this.#run(this.#vision, 'image_embeds', { pixels: preprocess(image, this.#steps) });
  }

  /** Frees the sessions; nothing may be under way. */
  async close(): Promise<void> {
    for (const file of new Set([this.#text, this.#vision])) await file.dispose();
  }

  /** A graph of both halves gets an empty text with an image, and a black image with a text. */
  async #run(
    file: ModelFile,
    output: Embedding,
    { tokens, pixels }: { readonly tokens?: TextTokens; readonly pixels?: Float32Array },
  ): Promise<Float32Array> {
    const { width, height } = this.#steps.crop;
    const { ids, mask } = tokens ?? (await this.#noText(file));
    const all: Feeds = {
      input_ids: { data: ids, shape: [1, ids.length] },
      attention_mask: { data: mask, shape: [1, mask.length] },
      pixel_values: { data: pixels ?? new Float32Array(3 * width * height), shape: [1, 3, height, width] },
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
  async #noText(file: ModelFile): Promise<TextTokens> {
    const { ids, mask } = await this.#tokenizer.encode('');
    if (typeof file.shapeOf('input_ids')[1] === 'number') return { ids, mask };
    return { ids: ids.slice(0, 2), mask: mask.slice(0, 2) };
  }

  async #tryOut(): Promise<void> {
    const { width, height } = this.#steps.crop;
    let sizes: readonly number[];
    try {
      const black = { width, height, data: new Uint8Array(width * height * 3) };
      sizes = [await this.textEmbedding(''), await this.imageEmbedding(black)].map(({ length }) => length);
    } catch (cause) {
      throw new ConfigError(
        `the model does not run on ${width}x${height} pixels and ${this.#tokenizer.context} tokens, as its folder says: ${cause instanceof Error ? cause.message : String(cause)}`,
        {
          where: this.folder,
          next: 'Take all files from one export: config.json, preprocessor_config.json, tokenizer.json and the graphs.',
          cause,
        },
      );
    }
    if (sizes[0] === sizes[1]) return;
    throw new ConfigError(`texts become ${sizes[0]} numbers, images ${sizes[1]}: these are not halves of one model`, {
      where: this.folder,
      next: 'Take text_model.onnx and vision_model.onnx from one export.',
    });
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

/** The cosine of the angle between two vectors of the same length; NaN where one has no length or holds a NaN. */
export function cosine(a: Float32Array, b: Float32Array): number {
  if (a.length !== b.length) throw new InternalError(`embeddings of ${a.length} and ${b.length} numbers`);
  let [dot, ofA, ofB] = [0, 0, 0];
  for (let i = 0; i < a.length; i++) {
    dot += a[i] * b[i];
    ofA += a[i] * a[i];
    ofB += b[i] * b[i];
  }
  return dot / Math.sqrt(ofA * ofB);
}
