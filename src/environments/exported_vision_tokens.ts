/**
 * Image tokenizers exported from another program by `scripts/export_emu3_vision`: a folder with `config.json`, `encoder.onnx` (`pixels` [images, 3,
 * height, width] to `codes` [images, height / patch, width / patch]) and `decoder.onnx`, the inverse. Pixels are colours in [0, 1], normalized by
 * each channel's mean and standard deviation.
 */
import { createHash } from 'node:crypto';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { z } from 'zod';
import { digestOfFileSync } from '../core/digest.js';
import { CheckpointError, DataError, EngineError } from '../core/errors.js';
import type { RgbImage } from '../core/image.js';
import type { CodeGrid } from '../data/types.js';
import { ModelFile, type ModelFileOptions, type ModelTensor } from '../engines/onnx/model_file.js';
import { EXPORTED, EXPORTED_FILES } from '../models/exported.js';
import { CONFIG_FILE } from '../models/files.js';
import { fromNetwork, toNetwork, type Levels } from '../models/pictures/emu3_processor.js';
import { gridSize, type VisionTokenizer, type VisionTokenizerConfig } from './vision_tokenizer.js';

const channels = z.tuple([z.number(), z.number(), z.number()]);
const deviations = z.tuple([z.number().positive(), z.number().positive(), z.number().positive()]);
const schema = z.object({
  model_type: z.literal(EXPORTED),
  codebook_size: z.int().positive(),
  patch: z.int().positive(),
  image_mean: channels,
  image_std: deviations,
});

/** The two halves of the network, with their inputs and outputs. */
const halves = {
  encoder: { file: EXPORTED_FILES.encoder, takes: 'pixels', gives: 'codes' },
  decoder: { file: EXPORTED_FILES.decoder, takes: 'codes', gives: 'pixels' },
} as const;
type Half = keyof typeof halves;

export class ExportedVisionTokenizer implements VisionTokenizer {
  /** A hash of the files. */
  readonly id: string;
  readonly config: VisionTokenizerConfig;
  readonly sizing = null;
  readonly #levels: Levels;
  readonly #open = new Map<Half, Promise<ModelFile>>();

  /** Raises CheckpointError for a folder that lacks a file, or whose config.json has another form. */
  constructor(
    readonly folder: string,
    json: unknown,
    readonly options: ModelFileOptions,
  ) {
    const { codebook_size, patch, image_mean, image_std } = readExport(folder, json);
    this.config = { codebook_size, patch };
    this.#levels = { scale: 1 / 255, mean: image_mean, std: image_std };
    const hash = createHash('sha256').update(JSON.stringify([codebook_size, patch, image_mean, image_std]));
    for (const { file } of Object.values(halves)) hash.update(digestOfFileSync(join(folder, file)));
    this.id = hash.digest('hex');
  }

  /** Runs one image at a time: in a batch, the last bits of a result depend on the other images. Raises EngineError when the model cannot run. */
  async encode(images: readonly RgbImage[]): Promise<CodeGrid[]> {
    const grids: CodeGrid[] = [];
    for (const image of images) {
      const size = gridSize(image, this.config.patch);
      const shape = [1, 3, image.height, image.width];
      const codes = await this.#run('encoder', { data: toNetwork(this.#levels, image), shape }, [
        1,
        size.height,
        size.width,
      ]);
      grids.push({ ...size, codes: Int32Array.from(codes as ArrayLike<number | bigint>, Number) });
    }
    return grids;
  }

  /** Like `encode`. Raises DataError for a code that the tokenizer does not have. */
  async decode(grids: readonly CodeGrid[]): Promise<RgbImage[]> {
    const { codebook_size, patch } = this.config;
    const images: RgbImage[] = [];
    for (const { height, width, codes } of grids) {
      const wrong = codes.find((code) => code < 0 || code >= codebook_size);
      if (wrong !== undefined) {
        throw new DataError(`there is no code ${wrong}: the image tokenizer has ${codebook_size}`, {
          where: this.folder,
        });
      }
      const [rows, columns] = [height * patch, width * patch];
      const data = BigInt64Array.from(codes, BigInt);
      const planes = await this.#run('decoder', { data, shape: [1, height, width] }, [1, 3, rows, columns]);
      images.push(fromNetwork(this.#levels, planes as Float32Array, { height: rows, width: columns }));
    }
    return images;
  }

  async dispose(): Promise<void> {
    const open = [...this.#open.values()];
    this.#open.clear();
    for (const model of open) await (await model).dispose();
  }

  async #run(half: Half, input: ModelTensor, expected: readonly number[]): Promise<ModelTensor['data']> {
    const { takes, gives } = halves[half];
    const { data, shape } = (await (await this.#model(half)).run({ [takes]: input }))[gives];
    if (shape.join() === expected.join()) return data;
    throw new EngineError(`${gives} have the shape [${shape.join(', ')}]; expected: [${expected.join(', ')}]`, {
      where: join(this.folder, halves[half].file),
      next: `Check patch in ${CONFIG_FILE}, or export the model again (scripts/export_emu3_vision).`,
    });
  }

  async #model(half: Half): Promise<ModelFile> {
    let model = this.#open.get(half);
    if (model === undefined) {
      model = openHalf(join(this.folder, halves[half].file), half, this.options);
      this.#open.set(half, model);
      // A failure is not cached: the next call tries again.
      model.catch(() => this.#open.delete(half));
    }
    return model;
  }
}

/** Reads config.json. Raises CheckpointError for another form, and when a graph is missing. */
export function readExport(folder: string, json: unknown): z.output<typeof schema> {
  const parsed = schema.safeParse(json);
  const next = 'Make the folder with scripts/export_emu3_vision.';
  if (!parsed.success) {
    const [issue] = parsed.error.issues;
    throw new CheckpointError(`${issue.path.join('.')}: ${issue.message}`, { where: join(folder, CONFIG_FILE), next });
  }
  const missing = Object.values(halves).flatMap(({ file }) => (existsSync(join(folder, file)) ? [] : [file]));
  if (missing.length === 0) return parsed.data;
  throw new CheckpointError(`the exported image tokenizer lacks ${missing.join(' and ')}`, { where: folder, next });
}

async function openHalf(file: string, half: Half, options: ModelFileOptions): Promise<ModelFile> {
  const model = await ModelFile.open(file, options);
  const { takes, gives } = halves[half];
  if (model.inputs.join() === takes && model.outputs.includes(gives)) return model;
  const found = `takes ${model.inputs.join(', ')} and gives ${model.outputs.join(', ')}`;
  await model.dispose();
  throw new EngineError(`the ${half} ${found}; it has to take ${takes} and give ${gives}`, {
    where: file,
    next: 'Export it with scripts/export_emu3_vision.',
  });
}
