/** A model that compares texts with images, from a folder in the layout of Hugging Face: CLIP or SigLIP with their weights. */
import { join } from 'node:path';
import { LRUCache } from 'lru-cache';
import { CheckpointError, ConfigError, InternalError } from '../../../core/errors.js';
import type { RgbImage } from '../../../core/images/image.js';
import { FrozenGraph } from '../../../compute/onnx/frozen_graph.js';
import type { ModelFileOptions } from '../../../compute/onnx/model_file.js';
import { CONFIG_FILE } from '../../../models/files.js';
import {
  checkEmbedder,
  describeEmbedder,
  openImageHalf,
  openTextHalf,
  IMAGE_INPUT,
  TEXT_INPUT,
  type OpenedHalf,
} from '../../../models/networks/clip.js';
import { LEGACY_END } from '../../../compute/nets/clip/config.js';
import { firstFile } from './files.js';
import { preprocess, type Preprocessing, readPreprocessing, requireSide } from './preprocess.js';
import { ClipTokenizer, PaddedTokenizer, type TextReader } from './tokenizer.js';

/** Prompts whose embeddings are kept: 4096 of 512 numbers take 8 MB. */
const MAX_KEPT_PROMPTS = 4096;

const COPY_TOKENIZER =
  'Copy tokenizer.json from a Hub repository that has one for this model, such as Xenova/siglip-base-patch16-224 for the English SigLIP models.';

/**
 * The tokenizer of a model's folder, limited to the length that the model reads. Raises ConfigError or CheckpointError if a file is missing
 * or of another kind.
 */
export function textReader(folder: string): TextReader {
  firstFile([join(folder, CONFIG_FILE)], CONFIG_FILE, folder);
  const config = describeEmbedder(folder);
  const { max_position_embeddings: positions, vocab_size: rows } = config.text;
  if (config.family === 'siglip') {
    return requireRows(PaddedTokenizer.read(folder, positions, { advice: COPY_TOKENIZER }), rows, folder);
  }
  const tokenizer = ClipTokenizer.read(folder, positions);
  const { eos_token_id: end } = config.text;
  if (end !== LEGACY_END && end !== tokenizer.marks.end) {
    throw new CheckpointError(
      `the model reads the output at token ${end} (text_config.eos_token_id), but texts end with ${tokenizer.marks.end}`,
      { where: folder, next: 'Take the tokenizer and config.json from one model.' },
    );
  }
  return requireRows(tokenizer, rows, folder);
}

function requireRows(reader: TextReader, rows: number, folder: string): TextReader {
  if (reader.size <= rows) return reader;
  throw new CheckpointError(
    `the tokenizer has ${reader.size} tokens, but the model has ${rows} (text_config.vocab_size)`,
    {
      where: folder,
      next: 'Take the tokenizer and config.json from one model.',
    },
  );
}

/** The description of a model in its folder. */
interface Described {
  readonly reader: TextReader;
  readonly steps: Preprocessing;
}

/** Reads the description of a model, whose weights may be elsewhere. Raises the errors of `EmbeddingModel.open` for it. */
export function describeEmbeddingModel(folder: string): Described {
  const found = { reader: textReader(folder), steps: readPreprocessing(folder) };
  requireSide(found.steps, describeEmbedder(folder), folder);
  return found;
}

/** Checks all files that `EmbeddingModel.open` opens, without opening graphs or reading weights. Raises its errors. */
export function checkEmbeddingModel(folder: string): Described {
  const found = describeEmbeddingModel(folder);
  checkEmbedder(folder);
  return found;
}

export class EmbeddingModel {
  readonly #prompts = new LRUCache<string, Promise<Float32Array>>({ max: MAX_KEPT_PROMPTS });

  private constructor(
    readonly folder: string,
    private readonly reader: TextReader,
    private readonly steps: Preprocessing,
    private readonly text: FrozenGraph<'embedding'>,
    private readonly image: FrozenGraph<'embedding'>,
  ) {}

  /**
   * Opens the model and runs it once. Raises ConfigError or CheckpointError for a folder that lacks a file or whose files do not fit
   * together, EngineError if onnxruntime cannot run a graph.
   */
  static async open(folder: string, options: ModelFileOptions = {}): Promise<EmbeddingModel> {
    const { reader, steps } = checkEmbeddingModel(folder);
    const opened: FrozenGraph<'embedding'>[] = [];
    // One half after the other: the session has the first half's weights before the second half's are read.
    const open = async (half: OpenedHalf): Promise<FrozenGraph<'embedding'>> => {
      const graph = await FrozenGraph.open(half, options);
      opened.push(graph);
      return graph;
    };
    try {
      const text = await open(openTextHalf(folder, reader.context));
      const model = new EmbeddingModel(folder, reader, steps, text, await open(openImageHalf(folder)));
      await model.#tryOut();
      return model;
    } catch (error) {
      for (const graph of opened) await graph.dispose();
      throw error;
    }
  }

  /** The highest number of tokens that the model reads, and how many of this text it cuts. */
  async reads(prompt: string): Promise<{ readonly most: number; readonly unread: number }> {
    return { most: this.reader.context, unread: await this.reader.unread(prompt) };
  }

  /** The projection of a text, not normalized. Each prompt is computed once. Raises EngineError if the model fails. */
  textEmbedding(prompt: string): Promise<Float32Array> {
    const known = this.#prompts.get(prompt);
    if (known !== undefined) return known;
    const embedding = this.#embed(prompt);
    this.#prompts.set(prompt, embedding);
    // A failure is not cached: the next call tries again.
    embedding.catch(() => this.#prompts.delete(prompt));
    return embedding;
  }

  /**
   * The projection of an image, not normalized. One image per run: in a batch the last bits of a result depend on the other images, and an
   * episode's score must not. Raises EngineError if the model fails.
   */
  async imageEmbedding(image: RgbImage): Promise<Float32Array> {
    return (await this.image.run({ [IMAGE_INPUT]: preprocess(image, this.steps) })).embedding;
  }

  /** Frees the sessions. Nothing may be in flight. */
  async close(): Promise<void> {
    await this.text.dispose();
    await this.image.dispose();
  }

  async #embed(prompt: string): Promise<Float32Array> {
    const { ids } = await this.reader.encode(prompt);
    return (await this.text.run({ [TEXT_INPUT]: ids })).embedding;
  }

  async #tryOut(): Promise<void> {
    const { width, height } = this.steps.crop;
    let sizes: readonly number[];
    try {
      const dark = { width, height, data: new Uint8Array(width * height * 3) };
      sizes = [await this.textEmbedding(''), await this.imageEmbedding(dark)].map(({ length }) => length);
    } catch (cause) {
      throw new ConfigError(
        `the model does not run on ${width}x${height} pixels and ${this.reader.context} tokens, as its folder describes: ${cause instanceof Error ? cause.message : String(cause)}`,
        {
          where: this.folder,
          next: 'Take all files from one model: config.json, preprocessor_config.json, tokenizer.json and the weights.',
          cause,
        },
      );
    }
    if (sizes[0] === sizes[1]) return;
    throw new ConfigError(
      `texts become ${sizes[0]} numbers, but images become ${sizes[1]}: these are not halves of one model`,
      {
        where: this.folder,
        next: 'Take all weights from one model.',
      },
    );
  }
}

/** The cosine of the angle between two vectors of the same length. NaN if one has no length or contains a NaN. */
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
