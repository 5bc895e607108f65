/** Image tokenizers that editrl trains. They encode each patch of an image separately. */
import { createHash } from 'node:crypto';
import type { RgbImage } from '../../core/images/image.js';
import type { FloatTensor } from '../../core/safetensors.js';
import type { CodeGrid } from '../../data/types.js';
import { Lazy, frozenOptions } from '../../compute/onnx/frozen_graph.js';
import type { SessionOptions } from '../../compute/onnx/session.js';
import { Session } from '../../compute/onnx/session.js';
import { Graph, type Value } from '../../compute/graph/ir.js';
import type { ImageTokenizerConfig } from '../../compute/nets/image_tokenizer.js';
import { decodeCodes, encodePatches, nearestCodes, patchSize } from '../../compute/nets/image_tokenizer.js';
import { gridSize, type VisionTokenizer } from './vision_tokenizer.js';

/** Maximum number of patches per run of a graph. */
const CHUNK = 256;

export class TrainedVisionTokenizer implements VisionTokenizer {
  /** A hash of the weights. */
  readonly id: string;
  readonly sizing = null;
  readonly #encoder = new Lazy(() =>
    this.#compile('image encoder', (graph) => {
      const patches = graph.input('patches', [CHUNK, patchSize(this.config)]);
      return { codes: nearestCodes(this.config, encodePatches(this.config, patches)) };
    }),
  );
  readonly #decoder = new Lazy(() =>
    this.#compile('image decoder', (graph) => ({
      patches: decodeCodes(this.config, graph.input('codes', [CHUNK], 'int64')),
    })),
  );

  constructor(
    readonly config: ImageTokenizerConfig,
    readonly weights: ReadonlyMap<string, FloatTensor>,
    readonly options: SessionOptions,
  ) {
    const hash = createHash('sha256').update(JSON.stringify(config));
    for (const [name, { data }] of weights) {
      hash.update(name).update(new Uint8Array(data.buffer, data.byteOffset, data.byteLength));
    }
    this.id = hash.digest('hex');
  }

  async encode(images: readonly RgbImage[]): Promise<CodeGrid[]> {
    const session = await this.#encoder.get();
    const patches = toPatches(images, this.config.patch);
    const codes = new Int32Array(patches.length / patchSize(this.config));
    await inChunks(codes.length, async (start, end) => {
      const part = new Float32Array(CHUNK * patchSize(this.config));
      part.set(patches.subarray(start * patchSize(this.config), end * patchSize(this.config)));
      const out = await session.run({ patches: part }, this.weights);
      for (let i = start; i < end; i++) codes[i] = Number((out.codes as BigInt64Array)[i - start]);
    });
    let at = 0;
    return images.map((image) => {
      const grid = gridSize(image, this.config.patch);
      const start = at;
      at += grid.height * grid.width;
      return { ...grid, codes: codes.slice(start, at) };
    });
  }

  async decode(grids: readonly CodeGrid[]): Promise<RgbImage[]> {
    const session = await this.#decoder.get();
    const size = patchSize(this.config);
    const codes = Int32Array.from(grids.flatMap((grid) => [...grid.codes]));
    const patches = new Float32Array(codes.length * size);
    await inChunks(codes.length, async (start, end) => {
      const part = new BigInt64Array(CHUNK);
      for (let i = start; i < end; i++) part[i - start] = BigInt(codes[i]);
      const out = await session.run({ codes: part }, this.weights);
      patches.set((out.patches as Float32Array).subarray(0, (end - start) * size), start * size);
    });
    let at = 0;
    return grids.map((grid) => {
      const image = fromPatches(patches.subarray(at * size, (at + grid.codes.length) * size), grid, this.config.patch);
      at += grid.codes.length;
      return image;
    });
  }

  async dispose(): Promise<void> {
    await this.#encoder.dispose();
    await this.#decoder.dispose();
  }

  #compile(name: string, build: (graph: Graph) => Record<string, Value>): Promise<Session> {
    const graph = new Graph(name);
    return Session.compile(graph, build(graph), frozenOptions(this.options, this.weights));
  }
}

async function inChunks(total: number, run: (start: number, end: number) => Promise<void>): Promise<void> {
  for (let start = 0; start < total; start += CHUNK) await run(start, Math.min(total, start + CHUNK));
}

/**
 * Images as patches [N, 3 * patch^2] in [0, 1], image by image, row by row. Raises DataError when a side is not a
 * multiple of `patch`.
 */
export function toPatches(images: readonly RgbImage[], patch: number): Float32Array {
  const size = 3 * patch * patch;
  const counts = images.map((image) => {
    const { height, width } = gridSize(image, patch);
    return width * height;
  });
  const out = new Float32Array(counts.reduce((sum, n) => sum + n, 0) * size);
  let at = 0;
  for (const { width, height, data } of images) {
    for (let top = 0; top < height; top += patch) {
      for (let left = 0; left < width; left += patch) {
        for (let y = 0; y < patch; y++) {
          const row = ((top + y) * width + left) * 3;
          for (let x = 0; x < patch * 3; x++) out[at++] = data[row + x] / 255;
        }
      }
    }
  }
  return out;
}

function fromPatches(patches: Float32Array, grid: CodeGrid, patch: number): RgbImage {
  const width = grid.width * patch;
  const height = grid.height * patch;
  const data = new Uint8Array(width * height * 3);
  let at = 0;
  for (let top = 0; top < height; top += patch) {
    for (let left = 0; left < width; left += patch) {
      for (let y = 0; y < patch; y++) {
        const row = ((top + y) * width + left) * 3;
        for (let x = 0; x < patch * 3; x++) data[row + x] = Math.round(patches[at++] * 255);
      }
    }
  }
  return { width, height, data };
}
