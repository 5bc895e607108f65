/** Emu3's vision tokenizer, computed with the weights of its own folder. */
import { createHash } from 'node:crypto';
import pLimit from 'p-limit';
import { DataError } from '../../core/errors.js';
import type { RgbImage } from '../../core/images/image.js';
import type { CodeGrid } from '../../data/types.js';
import { frozenOptions } from '../../compute/onnx/frozen_graph.js';
import type { SessionOptions } from '../../compute/onnx/session.js';
import { SessionCache } from '../../compute/onnx/session_cache.js';
import type { Weights } from '../../models/files.js';
import {
  fitImage,
  fromNetwork,
  readEmu3Processor,
  toNetwork,
  type Emu3Processor,
} from '../../models/images/emu3_processor.js';
import { patchOf, type Emu3VisionConfig } from '../../compute/nets/emu3_vision/config.js';
import { checkEmu3Vision, openEmu3Vision } from '../../models/networks/emu3_vision.js';
import { codesOf, decodeCodes, encodeImages } from '../../compute/nets/emu3_vision/tokenizer.js';
import { gridSize, type ImageSizing, type VisionTokenizer, type VisionTokenizerConfig } from './vision_tokenizer.js';

/** Number of vectors that are compared with the codebook at once. 512 x 32768 distances take 64 MB. */
const ROWS = 512;
/** Number of image sizes whose graphs are kept. Each takes the memory of an image's activations. */
const KEPT = 1;

export class Emu3VisionTokenizer implements VisionTokenizer {
  /** A hash of the weights and of the conversion from colors to numbers. */
  readonly id: string;
  readonly config: VisionTokenizerConfig;
  readonly sizing: ImageSizing | null;
  readonly #encoder: SessionCache;
  readonly #codebook: SessionCache;
  readonly #decoder: SessionCache;
  /** Allows one image at a time, because its activations take gigabytes. */
  readonly #turns = pLimit(1);

  constructor(
    readonly folder: string,
    private readonly net: Emu3VisionConfig,
    private readonly weights: Weights,
    private readonly processor: Emu3Processor,
    options: SessionOptions,
  ) {
    this.config = visionConfig(net);
    this.sizing =
      processor.size === null
        ? null
        : { rules: processor.size, fit: (image, where) => fitImage(processor, image, where) };
    const session = frozenOptions(options, weights);
    this.#encoder = new SessionCache('image encoder', session, undefined, KEPT);
    this.#codebook = new SessionCache('codebook', session, undefined, KEPT);
    this.#decoder = new SessionCache('image decoder', session, undefined, KEPT);
    const hash = createHash('sha256').update(JSON.stringify([net, processor.levels]));
    for (const [name, { data }] of weights) {
      hash.update(name).update(new Uint8Array(data.buffer, data.byteOffset, data.byteLength));
    }
    this.id = hash.digest('hex');
  }

  /** Raises the CheckpointErrors of `openEmu3Vision` and `readEmu3Processor`. */
  static open(folder: string, json: Readonly<Record<string, unknown>>, options: SessionOptions): Emu3VisionTokenizer {
    const { config, weights } = openEmu3Vision(folder, json);
    return new Emu3VisionTokenizer(folder, config, weights, readEmu3Processor(folder, patchOf(config)), options);
  }

  /**
   * Encodes one image at a time, because in a batch the last bits of a result depend on the other images. Raises
   * EngineError when the provider fails.
   */
  async encode(images: readonly RgbImage[]): Promise<CodeGrid[]> {
    const grids: CodeGrid[] = [];
    for (const image of images) grids.push(await this.#turns(() => this.#encodeOne(image)));
    return grids;
  }

  /** Like `encode`. Raises DataError for a code outside the codebook. */
  async decode(grids: readonly CodeGrid[]): Promise<RgbImage[]> {
    const { codebook_size } = this.config;
    const wrong = grids.flatMap(({ codes }) => codes.find((code) => code < 0 || code >= codebook_size) ?? []);
    if (wrong.length > 0) {
      throw new DataError(`code ${wrong[0]} does not exist; the image tokenizer has ${codebook_size} codes`, {
        where: this.folder,
      });
    }
    const images: RgbImage[] = [];
    for (const grid of grids) images.push(await this.#turns(() => this.#decodeOne(grid)));
    return images;
  }

  async dispose(): Promise<void> {
    for (const half of [this.#encoder, this.#codebook, this.#decoder]) await half.dispose();
  }

  async #encodeOne(image: RgbImage): Promise<CodeGrid> {
    const { height, width } = image;
    const grid = gridSize(image, this.config.patch);
    const vectors = await this.#encoder.use(
      { height, width },
      (graph) => ({ vectors: encodeImages(this.net, graph.input('pixels', [1, 3, height, width])) }),
      async (session) =>
        (await session.run({ pixels: toNetwork(this.processor.levels, image) }, this.weights))['vectors'],
    );
    return { ...grid, codes: await this.#codesOf(vectors as Float32Array) };
  }

  async #codesOf(vectors: Float32Array): Promise<Int32Array> {
    const { embed_dim: width } = this.net;
    const codes = new Int32Array(vectors.length / width);
    await this.#codebook.use(
      {},
      (graph) => ({ codes: codesOf(this.net, graph.input('vectors', [ROWS, width])) }),
      async (session) => {
        for (let from = 0; from < codes.length; from += ROWS) {
          const part = new Float32Array(ROWS * width);
          part.set(vectors.subarray(from * width, (from + ROWS) * width));
          const found = (await session.run({ vectors: part }, this.weights))['codes'] as BigInt64Array;
          codes.set(Int32Array.from(found.subarray(0, codes.length - from), Number), from);
        }
      },
    );
    return codes;
  }

  async #decodeOne({ height, width, codes }: CodeGrid): Promise<RgbImage> {
    const { patch } = this.config;
    const planes = await this.#decoder.use(
      { height, width },
      (graph) => ({ pixels: decodeCodes(this.net, graph.input('codes', [1, height, width], 'int64')) }),
      async (session) => (await session.run({ codes: BigInt64Array.from(codes, BigInt) }, this.weights))['pixels'],
    );
    return fromNetwork(this.processor.levels, planes as Float32Array, { height: height * patch, width: width * patch });
  }
}

/** Checks a folder without computing or reading weights. Raises the CheckpointErrors of opening it. */
export function describeEmu3Vision(folder: string, json: Readonly<Record<string, unknown>>): VisionTokenizerConfig {
  const config = checkEmu3Vision(folder, json);
  readEmu3Processor(folder, patchOf(config));
  return visionConfig(config);
}

function visionConfig(config: Emu3VisionConfig): VisionTokenizerConfig {
  return { codebook_size: config.codebook_size, patch: patchOf(config) };
}
