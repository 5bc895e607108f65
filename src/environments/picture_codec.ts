/** Encodes pictures as the latents that a flow model paints, and decodes them. */
import { must } from '../core/errors.js';
import type { RgbImage } from '../core/image.js';
import { toImage, toPlanes, type Planes } from '../core/planes.js';
import { overFrozen } from '../engines/onnx/frozen_graph.js';
import type { SessionOptions } from '../engines/onnx/session.js';
import { SessionCache } from '../engines/onnx/session_cache.js';
import { slice } from '../graph/build.js';
import type { Shape, Value } from '../graph/ir.js';
import type { Weights } from '../models/files.js';
import { decodeLatents, encodePictures, openAutoencoder } from '../nets/autoencoder/autoencoder.js';
import { reduction, type AutoencoderConfig } from '../nets/autoencoder/config.js';

export interface PictureCodec {
  readonly channels: number;
  /** Side of a picture divided by that of its latents. */
  readonly reduction: number;
  /** Latents have about the spread of standard normal noise. A picture's sides are multiples of `reduction`. */
  encode(pictures: readonly RgbImage[]): Promise<Planes[]>;
  decode(latents: readonly Planes[]): Promise<RgbImage[]>;
  dispose(): Promise<void>;
}

/** Pixels are their own latents. */
export const pixelCodec: PictureCodec = {
  channels: 3,
  reduction: 1,
  encode: (pictures) => Promise.resolve(pictures.map(toPlanes)),
  decode: (latents) => Promise.resolve(latents.map(toImage)),
  dispose: () => Promise.resolve(),
};

/** A frozen autoencoder. Latents are (mean - shift_factor) * scaling_factor, as diffusers' models see them. */
export class AutoencoderCodec implements PictureCodec {
  readonly channels: number;
  readonly reduction: number;
  readonly #encoder: SessionCache;
  readonly #decoder: SessionCache;

  constructor(
    private readonly config: AutoencoderConfig,
    private readonly weights: Weights,
    options: SessionOptions,
  ) {
    // How a convolution is split over threads decides its last bits, and processes that share a machine have different numbers of threads.
    const alone = { ...overFrozen(options, weights), threads: 1 };
    this.#encoder = new SessionCache('encoder', alone);
    this.#decoder = new SessionCache('decoder', alone);
    this.channels = config.latent_channels;
    this.reduction = reduction(config);
  }

  /** Raises CheckpointError as `openAutoencoder` does. */
  static open(folder: string, options: SessionOptions): AutoencoderCodec {
    const { config, weights } = openAutoencoder(folder);
    return new AutoencoderCodec(config, weights, options);
  }

  async encode(pictures: readonly RgbImage[]): Promise<Planes[]> {
    const { scaling_factor: scale, shift_factor: shift } = this.config;
    const found = await this.#mapped(this.#encoder, pictures.map(toPlanes), (x) => encodePictures(this.config, x).mean);
    return found.map((planes) => ({ ...planes, data: planes.data.map((value) => (value - shift) * scale) }));
  }

  async decode(latents: readonly Planes[]): Promise<RgbImage[]> {
    const { scaling_factor: scale, shift_factor: shift } = this.config;
    const stored = latents.map((planes) => ({ ...planes, data: planes.data.map((value) => value / scale + shift) }));
    const found = await this.#mapped(this.#decoder, stored, (x) => slice(decodeLatents(this.config, x), 1, 0, 3));
    return found.map(toImage);
  }

  async dispose(): Promise<void> {
    await Promise.all([this.#encoder.dispose(), this.#decoder.dispose()]);
  }

  /** One half of the network, one picture at a time: in a batch, the last bits of a result may depend on the other pictures. */
  async #mapped(half: SessionCache, all: readonly Planes[], build: (x: Value) => Value): Promise<Planes[]> {
    const out: Planes[] = [];
    for (const { channels, height, width, data } of all) {
      const shape: Shape = [1, channels, height, width];
      const [y, [, depth, rows, columns]] = await half.use(
        { channels, height, width },
        (graph) => ({ y: build(graph.input('x', shape)) }),
        async (session) => {
          const found = await session.run({ x: data }, this.weights);
          return [found['y'] as Float32Array, must(session.outputs.get('y'), 'y').shape] as const;
        },
      );
      out.push({ channels: depth, height: rows, width: columns, data: y });
    }
    return out;
  }
}
