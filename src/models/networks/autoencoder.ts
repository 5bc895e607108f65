/** Opens an autoencoder of any class from its folder, written by this program or by diffusers. */
import { join } from 'node:path';
import { CheckpointError, must } from '../../core/errors.js';
import type { FloatTensor } from '../../core/safetensors.js';
import { Graph, type Shape, type Value } from '../../compute/graph/ir.js';
import { CONFIG_FILE, readConfig, readWeights, rejectUnread, tensorFiles, type Weights } from '../files.js';
import { autoencoderParameters, decodeLatents, encodeImages } from '../../compute/nets/autoencoder/autoencoder.js';
import {
  AUTOENCODER_CLASS,
  readAutoencoderConfig,
  reduction,
  type AutoencoderConfig,
} from '../../compute/nets/autoencoder/config.js';
import {
  decodeFlux2,
  encodeFlux2,
  FLUX2_CLASS,
  flux2Channels,
  flux2Reduction,
  readFlux2Autoencoder,
  type Flux2AutoencoderConfig,
} from '../../compute/nets/autoencoder/flux2.js';
import {
  decodeQwenImage,
  encodeQwenImage,
  QWEN_IMAGE_CLASS,
  readQwenImage,
  type QwenImageConfig,
} from '../../compute/nets/autoencoder/qwen_image.js';

export interface FrozenAutoencoder {
  /** Number of latent channels. */
  readonly channels: number;
  /** The ratio of an image's side to the side of its latents. */
  readonly reduction: number;
  /** Channels at full resolution. */
  readonly widest: number;
  /** A diffusion model reads latents as (mean - shift) * scale. One value for each channel. */
  readonly shift: readonly number[];
  readonly scale: readonly number[];
  /** Encodes images [B, 3, H, W] in [-1, 1] as means [B, channels, H / reduction, W / reduction]. */
  readonly encode: (images: Value) => Value;
  /** The reverse. */
  readonly decode: (latents: Value) => Value;
  /** Reads its weights. Raises CheckpointError for the first tensor that is missing or has another shape. */
  readonly weights: (folder: string) => Weights;
}

/** diffusers' `AutoencoderKL`. */
export function frozenAutoencoder(config: AutoencoderConfig): FrozenAutoencoder {
  const { latent_channels: channels, scaling_factor, shift_factor } = config;
  return {
    channels,
    reduction: reduction(config),
    widest: config.block_out_channels[0],
    shift: new Array<number>(channels).fill(shift_factor),
    scale: new Array<number>(channels).fill(scaling_factor),
    encode: (images) => encodeImages(config, images).mean,
    decode: (latents) => decodeLatents(config, latents),
    weights: (folder) => openAutoencoder(folder).weights,
  };
}

function qwenImage(config: QwenImageConfig): FrozenAutoencoder {
  const found: FrozenAutoencoder = {
    channels: config.z_dim,
    reduction: 2 ** (config.dim_mult.length - 1),
    widest: config.base_dim * config.dim_mult[0],
    shift: config.latents_mean,
    scale: config.latents_std.map((deviation) => 1 / deviation),
    encode: (images) => encodeQwenImage(config, images),
    decode: (latents) => decodeQwenImage(config, latents),
    weights: (folder) => readQwenImageWeights(folder, frozenParameters(found)),
  };
  return found;
}

/** Counts batches of training, and is not read. */
const FLUX2_COUNT = 'bn.num_batches_tracked';

function flux2(config: Flux2AutoencoderConfig): FrozenAutoencoder {
  const channels = flux2Channels(config);
  const found: FrozenAutoencoder = {
    channels,
    reduction: flux2Reduction(config),
    widest: Math.max(config.encoder.block_out_channels[0], config.decoder.block_out_channels[0]),
    // Its graphs normalize latents.
    shift: new Array<number>(channels).fill(0),
    scale: new Array<number>(channels).fill(1),
    encode: (images) => encodeFlux2(config, images),
    decode: (latents) => decodeFlux2(config, latents),
    weights: (folder) => {
      const [files, parameters] = [tensorFiles(folder), frozenParameters(found)];
      rejectUnread(folder, files, (name) => parameters.has(name) || name === FLUX2_COUNT);
      return readWeights(files, parameters);
    },
  };
  return found;
}

/** By their classes in diffusers. */
const classes: Readonly<Record<string, (json: object, where: string) => FrozenAutoencoder>> = {
  [AUTOENCODER_CLASS]: (json, where) => frozenAutoencoder(readAutoencoderConfig(json, where)),
  [FLUX2_CLASS]: (json, where) => flux2(readFlux2Autoencoder(json, where)),
  [QWEN_IMAGE_CLASS]: (json, where) => qwenImage(readQwenImage(json, where)),
};

/** The classes of autoencoders that are read. */
export const autoencoderClasses: readonly string[] = Object.keys(classes);

/**
 * The autoencoder in a folder of diffusers or of this program. Raises CheckpointError for another class and for
 * unsupported settings.
 */
export function describeAutoencoder(folder: string): FrozenAutoencoder {
  const where = join(folder, CONFIG_FILE);
  const json = Object(readConfig(folder)) as { readonly _class_name?: unknown };
  const name = String(json._class_name);
  if (Object.hasOwn(classes, name)) return classes[name](json, where);
  throw new CheckpointError(
    `_class_name ${JSON.stringify(json._class_name) ?? 'none'} is not supported; allowed: ${autoencoderClasses.join(', ')}`,
    { where, next: "Name an autoencoder's folder as diffusers saves it." },
  );
}

/** Names and shapes of its parameters, as they are computed with. */
export function frozenParameters({ channels, reduction: side, encode, decode }: FrozenAutoencoder): Map<string, Shape> {
  const graph = new Graph('parameters');
  encode(graph.input('pictures', [1, 3, side, side]));
  decode(graph.input('latents', [1, channels, 1, 1]));
  return new Map([...graph.parameters].map(([name, { shape }]) => [name, shape]));
}

/**
 * Opens an autoencoder from a folder of this program or of diffusers. Raises CheckpointError for a folder without
 * config or weights, an unsupported class, and the first tensor that is missing or has another shape.
 */
export function openAutoencoder(folder: string): { readonly config: AutoencoderConfig; readonly weights: Weights } {
  const config = readAutoencoderConfig(readConfig(folder), join(folder, CONFIG_FILE));
  const files = tensorFiles(folder);
  return { config, weights: readWeights(files, autoencoderParameters(config), (name) => storedName(files, name)) };
}

/** The names of attention layers in weights of diffusers before 0.14. */
const FORMER_NAMES: Readonly<Record<string, string>> = {
  to_q: 'query',
  to_k: 'key',
  to_v: 'value',
  'to_out.0': 'proj_attn',
};

/** From a parameter's name to that in the files. */
function storedName(files: ReadonlyMap<string, string>, name: string): string {
  if (files.has(name)) return name;
  const former = name.replace(/(to_[qkv]|to_out\.0)(?=\.(weight|bias)$)/, (layer) => must(FORMER_NAMES[layer], layer));
  return files.has(former) ? former : name;
}

/** Convolutions within a frame. The others extend over time. */
const FLAT = /\.(resample\.1|to_qkv|proj)\.weight$/;
/** Layers only over time. */
const OVER_TIME = /\.time_conv\.(weight|bias)$/;

/** The shape that a parameter has in the file. */
function storedShape(name: string, shape: Shape): Shape {
  if (name.endsWith('.gamma')) return name.includes('.attentions.') ? [...shape, 1, 1] : [...shape, 1, 1, 1];
  if (shape.length < 4 || FLAT.test(name)) return shape;
  const [outputs, inputs, side] = shape;
  return [outputs, inputs, side, side, side];
}

/** Reads the weights of parameters. Raises the CheckpointErrors of `readWeights`, and for tensors that the config does not imply. */
function readQwenImageWeights(folder: string, parameters: ReadonlyMap<string, Shape>): Weights {
  const files = tensorFiles(folder);
  rejectUnread(folder, files, (name) => parameters.has(name) || OVER_TIME.test(name));
  const stored = new Map([...parameters].map(([name, shape]) => [name, storedShape(name, shape)]));
  const read = readWeights(files, stored);
  return new Map([...read].map(([name, tensor]) => [name, imageSlice(tensor, parameters.get(name) ?? tensor.shape)]));
}

/** The last slice in time of a kernel [out, in, time, side, side], in this shape. Other tensors unchanged. */
function imageSlice({ shape, data }: FloatTensor, wanted: Shape): FloatTensor {
  if (shape.length !== 5) return { shape: wanted, data };
  const [outputs, inputs, time, side] = shape;
  const area = side * side;
  const out = new Float32Array(outputs * inputs * area);
  for (let i = 0; i < outputs * inputs; i++) {
    out.set(data.subarray((i * time + time - 1) * area, (i + 1) * time * area), i * area);
  }
  return { shape: wanted, data: out };
}
