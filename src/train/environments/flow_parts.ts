/**
 * The models that read prompts and style images for a flow transformer of real size. What looks at style images is a CLIP or a SigLIP as it is on the
 * Hub. A text encoder is what `scripts/export_flow_parts` wrote: a folder with config.json, whose `model_type` is flow_text_encoder, and model.onnx,
 * from the token ids of each tokenizer (a folder of its own) to `text` [1, T, width] and `pooled` [1, pooled_width].
 */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { z } from 'zod';
import { CheckpointError } from '../../core/errors.js';
import type { RgbImage } from '../../core/images/image.js';
import { FrozenGraph, Lazy } from '../../compute/onnx/frozen_graph.js';
import { ModelFile, type ModelFileOptions, type ModelTensor } from '../../compute/onnx/model_file.js';
import { CONFIG_FILE, readConfig } from '../../models/files.js';
import { openTokenizer } from '../../models/tokenizer/open.js';
import type { Tokenizer } from '../../models/tokenizer/tokenizer.js';
import { checkPictureTower, openPictureTower, PICTURE_INPUT, pictureWidth } from '../../models/networks/clip.js';
import { preprocess, type Preprocessing, readPreprocessing, requireSide } from '../../rewards/terms/clip/preprocess.js';
import type { EncodedPrompt, PromptEncoder } from './picture_words.js';

const size = z.int().positive();

const textSchema = z.object({
  model_type: z.literal('flow_text_encoder'),
  width: size,
  /** 0 for a model that takes no pooled text. */
  pooled_width: z.int().nonnegative(),
  /** `{}` is replaced by the prompt. */
  template: z.string().includes('{}').default('{}'),
  inputs: z
    .array(
      z.object({
        name: z.string().min(1),
        tokenizer: z.string().min(1),
        /** Ids are cut to this length; null: they are not cut. */
        length: size.nullable(),
        /** Id that pads shorter inputs; null: no padding. */
        pad: z.int().nonnegative().nullable(),
        /** The id placed at the end when ids are cut; null: none. */
        end: z.int().nonnegative().nullable(),
      }),
    )
    .min(1),
});

/** Its config.json, after checking that its graph exists. Raises CheckpointError. */
function readText(folder: string): z.output<typeof textSchema> {
  const parsed = textSchema.safeParse(readConfig<unknown>(folder));
  if (!parsed.success) {
    const [issue] = parsed.error.issues;
    throw new CheckpointError(`this is no text encoder that can be used: ${issue.path.join('.')}: ${issue.message}`, {
      where: join(folder, CONFIG_FILE),
      next: 'Export it with scripts/export_flow_parts, and name that folder.',
    });
  }
  if (existsSync(join(folder, GRAPH))) return parsed.data;
  throw new CheckpointError(`the text encoder lacks ${GRAPH}`, { where: folder, next: 'Export it again.' });
}

const GRAPH = 'model.onnx';

const floats = ({ data }: ModelTensor): Float32Array => Float32Array.from(data as Float32Array);

/** Encodes prompts for a flow transformer. */
export class FlowTextEncoder implements PromptEncoder {
  readonly width: number;
  readonly pooledWidth: number;
  readonly #config: z.output<typeof textSchema>;
  readonly #tokenizers: readonly Tokenizer[];
  readonly #model: Lazy<ModelFile>;

  /** Raises CheckpointError for a folder with another form. */
  constructor(folder: string, options: ModelFileOptions = {}) {
    this.#config = readText(folder);
    this.width = this.#config.width;
    this.pooledWidth = this.#config.pooled_width;
    this.#tokenizers = this.#config.inputs.map(({ tokenizer }) => openTokenizer(join(folder, tokenizer)));
    // On one thread: otherwise the last bits depend on the number of threads.
    this.#model = new Lazy(() => ModelFile.open(join(folder, GRAPH), { ...options, threads: 1 }));
  }

  /** A token counts as read if any of the tokenizers reads it. */
  async encode(prompt: string): Promise<EncodedPrompt> {
    const read = await this.#read(prompt);
    const feeds = read.map(
      ({ name, ids }) => [name, { data: BigInt64Array.from(ids, BigInt), shape: [1, ids.length] }] as const,
    );
    const model = await this.#model.get();
    const found = await model.run(Object.fromEntries(feeds));
    const output = (name: string): Float32Array => {
      if (Object.hasOwn(found, name)) return floats(found[name]);
      throw new CheckpointError(`it gives no ${name}`, { where: model.file, next: 'Export it again.' });
    };
    const pooled = this.pooledWidth === 0 ? null : output('pooled');
    return { text: output('text'), pooled, unread: leastOver(read) };
  }

  async unread(prompt: string): Promise<number> {
    return leastOver(await this.#read(prompt));
  }

  /** For each tokenizer, the ids that the model sees, and how many tokens are cut. */
  #read(prompt: string): Promise<{ readonly name: string; readonly ids: readonly number[]; readonly over: number }[]> {
    const { template, inputs } = this.#config;
    const words = template.replace('{}', () => prompt);
    return Promise.all(
      inputs.map(async ({ name, length, pad, end }, i) => {
        const all = await this.#tokenizers[i].encode(words, { addSpecial: true });
        const ids = fitted(all, length, pad, end);
        return { name, ids, over: Math.max(0, all.length - ids.length) };
      }),
    );
  }

  dispose(): Promise<void> {
    return this.#model.dispose();
  }
}

function leastOver(read: readonly { readonly over: number }[]): number {
  return Math.min(...read.map(({ over }) => over));
}

/** Cuts or pads ids to a length. */
function fitted(ids: readonly number[], length: number | null, pad: number | null, end: number | null): number[] {
  if (length === null || ids.length === length) return [...ids];
  if (ids.length < length) {
    return pad === null ? [...ids] : [...ids, ...new Array<number>(length - ids.length).fill(pad)];
  }
  return end === null ? ids.slice(0, length) : [...ids.slice(0, length - 1), end];
}

/** Encodes style images for an IP-Adapter. It is opened when it is first asked, and runs on one thread, as text encoders do. */
export class FlowImageEncoder {
  readonly width: number;
  readonly #steps: Preprocessing;
  readonly #model: Lazy<FrozenGraph<'embedding'>>;

  /**
   * The folder of a CLIP or a SigLIP: CLIP's features are its projection, SigLIP's those of its pooling head. Raises CheckpointError for a folder with
   * another form, ConfigError when its preprocessor needs an unavailable step.
   */
  constructor(folder: string, options: ModelFileOptions = {}) {
    const config = checkPictureTower(folder);
    this.width = pictureWidth(config);
    this.#steps = readPreprocessing(folder);
    requireSide(this.#steps, config, folder);
    this.#model = new Lazy(() => FrozenGraph.open(openPictureTower(folder), { ...options, threads: 1 }));
  }

  /** [width] */
  async encode(picture: RgbImage): Promise<Float32Array> {
    const model = await this.#model.get();
    return (await model.run({ [PICTURE_INPUT]: preprocess(picture, this.#steps) })).embedding;
  }

  dispose(): Promise<void> {
    return this.#model.dispose();
  }
}
