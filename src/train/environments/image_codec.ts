/** Encodes images as the latents of a flow model, and decodes them. */
import { must } from '../../core/errors.js';
import type { RgbImage } from '../../core/images/image.js';
import { toImage, toPlanes, type Planes } from '../../core/images/planes.js';
import { frozenOptions } from '../../compute/onnx/frozen_graph.js';
import type { SessionOptions } from '../../compute/onnx/session.js';
import { SessionCache } from '../../compute/onnx/session_cache.js';
import { slice } from '../../compute/graph/build.js';
import type { Shape, Value } from '../../compute/graph/ir.js';
import type { Weights } from '../../models/files.js';
import { describeAutoencoder, type FrozenAutoencoder } from '../../models/networks/autoencoder.js';

export interface ImageCodec {
  readonly channels: number;
  /** Side of an image divided by the side of its latents. */
  readonly reduction: number;
  /** Encodes images. Latents have about unit variance. An image's sides are multiples of `reduction`. */
  encode(images: readonly RgbImage[]): Promise<Planes[]>;
  decode(latents: readonly Planes[]): Promise<RgbImage[]>;
  dispose(): Promise<void>;
}

/** Uses pixels as latents. */
export const pixelCodec: ImageCodec = {
  channels: 3,
  reduction: 1,
  encode: (images) => Promise.resolve(images.map(toPlanes)),
  decode: (latents) => Promise.resolve(latents.map(toImage)),
  dispose: () => Promise.resolve(),
};

/** A frozen autoencoder. Latents are (mean - shift) * scale, as diffusers' models expect them. */
export class AutoencoderCodec implements ImageCodec {
  readonly channels: number;
  readonly reduction: number;
  readonly #encoder: SessionCache;
  readonly #decoder: SessionCache;

  constructor(
    private readonly net: FrozenAutoencoder,
    private readonly weights: Weights,
    options: SessionOptions,
  ) {
    // The number of threads determines the last bits of a convolution, and processes on one machine have different
    // numbers of threads.
    const alone = { ...frozenOptions(options, weights), threads: 1 };
    this.#encoder = new SessionCache('encoder', alone);
    this.#decoder = new SessionCache('decoder', alone);
    this.channels = net.channels;
    this.reduction = net.reduction;
  }

  /** Raises the CheckpointErrors of `describeAutoencoder` and its `weights`. */
  static open(folder: string, options: SessionOptions): AutoencoderCodec {
    const net = describeAutoencoder(folder);
    return new AutoencoderCodec(net, net.weights(folder), options);
  }

  async encode(images: readonly RgbImage[]): Promise<Planes[]> {
    const { shift, scale, encode } = this.net;
    const found = await this.#mapped(this.#encoder, images.map(toPlanes), encode);
    return found.map((planes) => byChannel(planes, (value, channel) => (value - shift[channel]) * scale[channel]));
  }

  async decode(latents: readonly Planes[]): Promise<RgbImage[]> {
    const { shift, scale, decode } = this.net;
    const stored = latents.map((planes) =>
      byChannel(planes, (value, channel) => value / scale[channel] + shift[channel]),
    );
    const found = await this.#mapped(this.#decoder, stored, (x) => slice(decode(x), 1, 0, 3));
    return found.map(toImage);
  }

  async dispose(): Promise<void> {
    await Promise.all([this.#encoder.dispose(), this.#decoder.dispose()]);
  }

  /**
   * Runs half of the network on one image at a time, because in a batch the last bits of a result may depend on the
   * other images.
   */
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

function byChannel(planes: Planes, change: (value: number, channel: number) => number): Planes {
  const size = planes.height * planes.width;
  return { ...planes, data: planes.data.map((value, i) => change(value, Math.floor(i / size))) };
}
