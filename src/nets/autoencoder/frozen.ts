/** Autoencoders of pictures that are not trained, of every class that is read. */
import { join } from 'node:path';
import { CheckpointError } from '../../core/errors.js';
import { Graph, type Shape, type Value } from '../../graph/ir.js';
import { CONFIG_FILE, readConfig, type Weights } from '../../models/files.js';
import { decodeLatents, encodePictures, openAutoencoder } from './autoencoder.js';
import { AUTOENCODER_CLASS, readAutoencoderConfig, reduction, type AutoencoderConfig } from './config.js';
import {
  decodeQwenImage,
  encodeQwenImage,
  QWEN_IMAGE_CLASS,
  readQwenImage,
  readQwenImageWeights,
  type QwenImageConfig,
} from './qwen_image.js';

export interface FrozenAutoencoder {
  /** Of latents. */
  readonly channels: number;
  /** Side of a picture divided by that of its latents. */
  readonly reduction: number;
  /** Channels of its largest pictures. */
  readonly widest: number;
  /** Latents that a diffusion model sees are (mean - shift) * scale; one value for each channel. */
  readonly shift: readonly number[];
  readonly scale: readonly number[];
  /** Pictures [B, 3, H, W] in [-1, 1] to means [B, channels, H / reduction, W / reduction]. */
  readonly encode: (pictures: Value) => Value;
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
    encode: (pictures) => encodePictures(config, pictures).mean,
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
    encode: (pictures) => encodeQwenImage(config, pictures),
    decode: (latents) => decodeQwenImage(config, latents),
    weights: (folder) => readQwenImageWeights(folder, frozenParameters(found)),
  };
  return found;
}

/** By their classes in diffusers. */
const classes: Readonly<Record<string, (json: object, where: string) => FrozenAutoencoder>> = {
  [AUTOENCODER_CLASS]: (json, where) => frozenAutoencoder(readAutoencoderConfig(json, where)),
  [QWEN_IMAGE_CLASS]: (json, where) => qwenImage(readQwenImage(json, where)),
};

/** The classes of autoencoders that are read. */
export const autoencoderClasses: readonly string[] = Object.keys(classes);

/** The autoencoder in a folder that diffusers or this program wrote. Raises CheckpointError for another class, and for what cannot be computed. */
export function describeAutoencoder(folder: string): FrozenAutoencoder {
  const where = join(folder, CONFIG_FILE);
  const json = Object(readConfig(folder)) as { readonly _class_name?: unknown };
  const name = String(json._class_name);
  if (Object.hasOwn(classes, name)) return classes[name](json, where);
  throw new CheckpointError(
    `_class_name ${JSON.stringify(json._class_name) ?? 'none'} is not covered; covered: ${autoencoderClasses.join(', ')}`,
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
