/**
 * The frozen models around a flow transformer of real size, as `scripts/export_flow_parts` writes them: a folder with config.json, whose
 * `model_type` says which part it is, and ONNX files. What looks at style images may be a CLIP or a SigLIP as well, as it is on the Hub.
 *
 *   flow_text_encoder    model.onnx: the token ids of each tokenizer (a folder of its own) to `text` [1, T, width] and `pooled` [1, pooled_width]
 *   flow_image_encoder   model.onnx: `pixels` [1, 3, height, width] to `features` [1, width]; preprocessor_config.json says which pixels
 *   flow_autoencoder     encoder.onnx, decoder.onnx: `pixels` [1, 3, h, w] in [-1, 1] to `latents` [1, channels, h / reduction, w / reduction] as the
 *                        transformer sees them, and back
 */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { z } from 'zod';
import { CheckpointError, must } from '../core/errors.js';
import type { RgbImage } from '../core/image.js';
import { toImage, toPlanes, type Planes } from '../core/planes.js';
import { LazyModelFile } from '../engines/onnx/lazy_model_file.js';
import type { ModelFileOptions, ModelTensor } from '../engines/onnx/model_file.js';
import { CONFIG_FILE, readConfig } from '../models/files.js';
import { openTokenizer } from '../models/tokenizer/open.js';
import type { Tokenizer } from '../models/tokenizer/tokenizer.js';
import { checkPictureTower, openPictureTower, PICTURE_INPUT, pictureWidth } from '../nets/clip/files.js';
import { ComputedHalf } from '../rewards/terms/clip/halves.js';
import { preprocess, readPreprocessing, requireSide, type Preprocessing } from '../rewards/terms/clip/preprocess.js';
import type { PictureCodec } from './picture_codec.js';
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
const imageSchema = z.object({ model_type: z.literal('flow_image_encoder'), width: size });
const codecSchema = z.object({ model_type: z.literal('flow_autoencoder'), channels: size, reduction: size });

/** A part's config.json, after checking that its files exist. Raises CheckpointError that names `part`. */
function readPart<T extends z.ZodType>(folder: string, part: string, schema: T, files: readonly string[]): z.output<T> {
  const parsed = schema.safeParse(readConfig<unknown>(folder));
  if (!parsed.success) {
    const [issue] = parsed.error.issues;
    throw new CheckpointError(`this is no ${part} that can be used: ${issue.path.join('.')}: ${issue.message}`, {
      where: join(folder, CONFIG_FILE),
      next: 'Export it with scripts/export_flow_parts, and name that folder.',
    });
  }
  const missing = files.filter((file) => !existsSync(join(folder, file)));
  if (missing.length === 0) return parsed.data;
  throw new CheckpointError(`the ${part} lacks ${missing.join(', ')}`, { where: folder, next: 'Export it again.' });
}

/** Runs on one thread, like AutoencoderCodec: otherwise the last bits depend on the number of threads. */
const lazy = (folder: string, file: string, options: ModelFileOptions): LazyModelFile =>
  new LazyModelFile(join(folder, file), { ...options, threads: 1 });

const floats = ({ data }: ModelTensor): Float32Array => Float32Array.from(data as Float32Array);

/** Encodes prompts for a flow transformer. */
export class FlowTextEncoder implements PromptEncoder {
  readonly width: number;
  readonly pooledWidth: number;
  readonly #config: z.output<typeof textSchema>;
  readonly #tokenizers: readonly Tokenizer[];
  readonly #model: LazyModelFile;

  /** Raises CheckpointError for a folder with another form. */
  constructor(folder: string, options: ModelFileOptions = {}) {
    this.#config = readPart(folder, 'text encoder', textSchema, ['model.onnx']);
    this.width = this.#config.width;
    this.pooledWidth = this.#config.pooled_width;
    this.#tokenizers = this.#config.inputs.map(({ tokenizer }) => openTokenizer(join(folder, tokenizer)));
    this.#model = lazy(folder, 'model.onnx', options);
  }

  /** A token counts as read if any of the tokenizers reads it. */
  async encode(prompt: string): Promise<EncodedPrompt> {
    const read = await this.#read(prompt);
    const feeds = read.map(
      ({ name, ids }) => [name, { data: BigInt64Array.from(ids, BigInt), shape: [1, ids.length] }] as const,
    );
    const outputs = this.pooledWidth === 0 ? ['text'] : ['text', 'pooled'];
    const [text, pooled] = await this.#model.run(Object.fromEntries(feeds), ...outputs);
    const summary = this.pooledWidth === 0 ? null : floats(must(pooled, 'the summary'));
    return { text: floats(text), pooled: summary, unread: leastOver(read) };
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

/** What looks at style images: pixels, axes [3, height, width], to features. */
interface Looks {
  run(pixels: Float32Array, size: { readonly height: number; readonly width: number }): Promise<Float32Array>;
  dispose(): Promise<void>;
}

/** Encodes style images for an IP-Adapter. */
export class FlowImageEncoder {
  readonly width: number;
  readonly #steps: Preprocessing;
  readonly #looks: Looks;

  /**
   * A folder that was exported, or that of a CLIP or a SigLIP as it is: CLIP's features are its projection, SigLIP's those of its pooling head. Raises
   * CheckpointError for a folder with another form, ConfigError when its preprocessor needs an unavailable step.
   */
  constructor(folder: string, options: ModelFileOptions = {}) {
    if (isExportedImageEncoder(folder)) {
      this.width = readPart(folder, 'image encoder', imageSchema, ['model.onnx']).width;
      this.#looks = new ExportedLooks(lazy(folder, 'model.onnx', options));
      this.#steps = readPreprocessing(folder);
      return;
    }
    const config = checkPictureTower(folder);
    this.width = pictureWidth(config);
    this.#looks = new ComputedLooks(folder, options);
    this.#steps = readPreprocessing(folder);
    requireSide(this.#steps, config, folder);
  }

  /** [width] */
  encode(picture: RgbImage): Promise<Float32Array> {
    return this.#looks.run(preprocess(picture, this.#steps), this.#steps.crop);
  }

  dispose(): Promise<void> {
    return this.#looks.dispose();
  }
}

function isExportedImageEncoder(folder: string): boolean {
  return readConfig<{ readonly model_type?: unknown }>(folder).model_type === 'flow_image_encoder';
}

class ExportedLooks implements Looks {
  constructor(private readonly model: LazyModelFile) {}

  async run(
    data: Float32Array,
    { height, width }: { readonly height: number; readonly width: number },
  ): Promise<Float32Array> {
    const [features] = await this.model.run({ pixels: { data, shape: [1, 3, height, width] } }, 'features');
    return floats(features);
  }

  dispose(): Promise<void> {
    return this.model.dispose();
  }
}

/** The vision half of a checkpoint, opened when it is first asked; on one thread, as what was exported. */
class ComputedLooks implements Looks {
  #opened: Promise<ComputedHalf> | null = null;

  constructor(
    private readonly folder: string,
    private readonly options: ModelFileOptions,
  ) {}

  async run(pixels: Float32Array): Promise<Float32Array> {
    if (this.#opened === null) {
      this.#opened = ComputedHalf.open(openPictureTower(this.folder), { ...this.options, threads: 1 });
      // A failure is not kept: the next one who asks tries again.
      this.#opened.catch(() => (this.#opened = null));
    }
    return (await this.#opened).run({ [PICTURE_INPUT]: pixels });
  }

  async dispose(): Promise<void> {
    await (await this.#opened)?.dispose();
  }
}

/** Whether a folder holds an exported autoencoder. */
export function isExportedAutoencoder(folder: string): boolean {
  return readConfig<{ readonly model_type?: unknown }>(folder).model_type === 'flow_autoencoder';
}

/** An autoencoder exported from another program. */
export class ExportedCodec implements PictureCodec {
  readonly channels: number;
  readonly reduction: number;
  readonly #encoder: LazyModelFile;
  readonly #decoder: LazyModelFile;

  /** Raises CheckpointError for a folder with another form. */
  constructor(folder: string, options: ModelFileOptions = {}) {
    const found = readPart(folder, 'autoencoder', codecSchema, ['encoder.onnx', 'decoder.onnx']);
    this.channels = found.channels;
    this.reduction = found.reduction;
    this.#encoder = lazy(folder, 'encoder.onnx', options);
    this.#decoder = lazy(folder, 'decoder.onnx', options);
  }

  encode(pictures: readonly RgbImage[]): Promise<Planes[]> {
    return this.#mapped(this.#encoder, 'pixels', 'latents', pictures.map(toPlanes));
  }

  async decode(latents: readonly Planes[]): Promise<RgbImage[]> {
    return (await this.#mapped(this.#decoder, 'latents', 'pixels', latents)).map(toImage);
  }

  async dispose(): Promise<void> {
    await Promise.all([this.#encoder.dispose(), this.#decoder.dispose()]);
  }

  /** Runs one picture at a time: in a batch, the last bits of a result may depend on the other pictures. */
  async #mapped(model: LazyModelFile, takes: string, gives: string, all: readonly Planes[]): Promise<Planes[]> {
    const out: Planes[] = [];
    for (const { channels, height, width, data } of all) {
      const [found] = await model.run({ [takes]: { data, shape: [1, channels, height, width] } }, gives);
      const [, c, h, w] = found.shape;
      out.push({ channels: c, height: h, width: w, data: floats(found) });
    }
    return out;
  }
}
