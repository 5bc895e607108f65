/** Pictures as the latents that a flow model paints, and back. */
import type { RgbImage } from '../core/image.js';
import { toImage, toPlanes, type Planes } from '../core/planes.js';
import { Session, type SessionOptions } from '../engines/onnx/session.js';
import { slice } from '../graph/build.js';
import { Graph, type Shape, type Value } from '../graph/ir.js';
import type { Weights } from '../models/files.js';
import { decodeLatents, encodePictures, openAutoencoder } from '../nets/autoencoder/autoencoder.js';
import { reduction, type AutoencoderConfig } from '../nets/autoencoder/config.js';

export interface PictureCodec {
  readonly channels: number;
  /** A picture's side by that of its latents. */
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

/** A frozen autoencoder. Latents are (mean - shift_factor) * scaling_factor, as diffusion models of diffusers see them. */
export class AutoencoderCodec implements PictureCodec {
  readonly channels: number;
  readonly reduction: number;
  readonly #compiled = new Map<string, Promise<Half>>();

  readonly #options: SessionOptions;

  constructor(
    private readonly config: AutoencoderConfig,
    private readonly weights: Weights,
    options: SessionOptions,
  ) {
    // How a convolution is cut for threads decides its last bits, and processes that share a machine have different numbers of them.
    this.#options = { ...options, threads: 1 };
    this.channels = config.latent_channels;
    this.reduction = reduction(config);
  }

  /** Raises CheckpointError as `openAutoencoder`. */
  static open(folder: string, options: SessionOptions): AutoencoderCodec {
    const { config, weights } = openAutoencoder(folder);
    return new AutoencoderCodec(config, weights, options);
  }

  async encode(pictures: readonly RgbImage[]): Promise<Planes[]> {
    const { scaling_factor: scale, shift_factor: shift } = this.config;
    const found = await this.#mapped('encoder', pictures.map(toPlanes), (x) => encodePictures(this.config, x).mean);
    return found.map((planes) => ({ ...planes, data: planes.data.map((value) => (value - shift) * scale) }));
  }

  async decode(latents: readonly Planes[]): Promise<RgbImage[]> {
    const { scaling_factor: scale, shift_factor: shift } = this.config;
    const stored = latents.map((planes) => ({ ...planes, data: planes.data.map((value) => value / scale + shift) }));
    const found = await this.#mapped('decoder', stored, (x) => slice(decodeLatents(this.config, x), 1, 0, 3));
    return found.map(toImage);
  }

  async dispose(): Promise<void> {
    const compiled = [...this.#compiled.values()];
    this.#compiled.clear();
    for (const half of compiled) await (await half).session.dispose();
  }

  /** Half of the network, one picture to a run: in a batch the last bits of a result may depend on its company. */
  async #mapped(name: string, all: readonly Planes[], build: (x: Value) => Value): Promise<Planes[]> {
    const out: Planes[] = [];
    for (const { channels, height, width, data } of all) {
      const key = `${name} ${channels}x${height}x${width}`;
      const half = this.#compiled.get(key) ?? compiled(key, [1, channels, height, width], build, this.#options);
      this.#compiled.set(key, half);
      // A failure is not kept: the next one who asks tries again.
      half.catch(() => this.#compiled.delete(key));
      const { session, result } = await half;
      const y = (await session.run({ x: data }, this.weights))['y'] as Float32Array;
      out.push({ channels: result[1], height: result[2], width: result[3], data: y });
    }
    return out;
  }
}

/** Half of the network for one size, and the shape of what it gives. */
interface Half {
  readonly session: Session;
  readonly result: Shape;
}

async function compiled(
  name: string,
  shape: Shape,
  build: (x: Value) => Value,
  options: SessionOptions,
): Promise<Half> {
  const graph = new Graph(name);
  const y = build(graph.input('x', shape));
  return { session: await Session.compile(graph, { y }, options), result: y.shape };
}
