/**
 * The autoencoder of FLUX.2, with the names of diffusers' `AutoencoderKLFlux2`: an `AutoencoderKL` whose means are
 * packed in squares of 2 x 2 and normalized by stored means and variances. diffusers' pipelines do both. Here they are
 * a part of it, so that one latent is one token of the transformer.
 */
import { z } from 'zod';
import { CheckpointError } from '../../../core/errors.js';
import { add, div, mul, reshape, sqrt, sub, transpose } from '../../graph/build.js';
import type { Value } from '../../graph/ir.js';
import { decodeLatents, encodeImages } from './autoencoder.js';
import { type AutoencoderConfig, reduction } from './config.js';

export const FLUX2_CLASS = 'AutoencoderKLFlux2';

/** Side of a packed square. */
const PATCH = 2;

export interface Flux2AutoencoderConfig {
  readonly encoder: AutoencoderConfig;
  /** It may have other channels. */
  readonly decoder: AutoencoderConfig;
  /** Added to the stored variances. */
  readonly epsilon: number;
}

const size = z.int().positive();
const three = z.literal(3, 'only 3 is supported').default(3);
const levels = (name: string, count = 4) => z.array(z.literal(name)).default(new Array<string>(count).fill(name));
const schema = z.strictObject({
  in_channels: three,
  out_channels: three,
  down_block_types: levels('DownEncoderBlock2D'),
  up_block_types: levels('UpDecoderBlock2D'),
  block_out_channels: z.array(size).min(1).default([128, 256, 512, 512]),
  decoder_block_out_channels: z
    .array(size)
    .min(1)
    .nullish()
    .transform((channels) => channels ?? null),
  layers_per_block: size.default(2),
  act_fn: z.literal('silu', "only 'silu' is supported").default('silu'),
  latent_channels: size.default(32),
  norm_num_groups: size.default(32),
  /** Not read: the size of training images. */
  sample_size: z.unknown().optional(),
  use_quant_conv: z.boolean().default(true),
  use_post_quant_conv: z.boolean().default(true),
  mid_block_add_attention: z.boolean().default(true),
  batch_norm_eps: z.number().positive().default(1e-4),
  /** Not read: only training moves the stored means and variances. */
  batch_norm_momentum: z.unknown().optional(),
  patch_size: z
    .array(z.literal(PATCH, `only [${PATCH}, ${PATCH}] is supported`))
    .length(2)
    .default([PATCH, PATCH]),
  _class_name: z.literal(FLUX2_CLASS),
  _diffusers_version: z.string().nullish(),
  _name_or_path: z.string().nullish(),
});

/** Reads its `config.json`. Raises CheckpointError, naming `where`, for unsupported settings. */
export function readFlux2Autoencoder(json: object, where: string): Flux2AutoencoderConfig {
  const parsed = schema.safeParse(json);
  if (!parsed.success) {
    const [issue] = parsed.error.issues;
    throw new CheckpointError([...issue.path, issue.message].join(': '), { where });
  }
  const { decoder_block_out_channels, batch_norm_eps: epsilon, down_block_types, up_block_types } = parsed.data;
  const encoder: AutoencoderConfig = { ...parsed.data, scaling_factor: 1, shift_factor: 0 };
  const { block_out_channels: channels, norm_num_groups: groups } = encoder;
  const decoder = { ...encoder, block_out_channels: decoder_block_out_channels ?? channels };
  const lists = { decoder_block_out_channels: decoder.block_out_channels, down_block_types, up_block_types };
  for (const [name, { length }] of Object.entries(lists)) {
    if (length === channels.length) continue;
    throw new CheckpointError(`${name} has ${length} values, and block_out_channels ${channels.length}`, { where });
  }
  const uneven = [...channels, ...decoder.block_out_channels].find((width) => width % groups !== 0);
  if (uneven === undefined) return { encoder, decoder, epsilon };
  throw new CheckpointError(`a level has ${uneven} channels, which is not a multiple of norm_num_groups ${groups}`, {
    where,
  });
}

/** Channels of its packed latents. */
export function flux2Channels({ encoder }: Flux2AutoencoderConfig): number {
  return PATCH ** 2 * encoder.latent_channels;
}

/** The ratio of an image's side to the side of its packed latents. */
export function flux2Reduction({ encoder }: Flux2AutoencoderConfig): number {
  return PATCH * reduction(encoder);
}

/** Encodes images [B, 3, H, W] in [-1, 1] as normalized latents [B, 4 latent_channels, H / r, W / r]. */
export function encodeFlux2(config: Flux2AutoencoderConfig, images: Value): Value {
  const { mean } = encodeImages(config.encoder, images);
  const [batch, channels, height, width] = mean.shape as [number, number, number, number];
  const apart = reshape(mean, [batch, channels, height / PATCH, PATCH, width / PATCH, PATCH]);
  const shape = [batch, PATCH ** 2 * channels, height / PATCH, width / PATCH];
  const packed = reshape(transpose(apart, [0, 1, 3, 5, 2, 4]), shape);
  const { means, deviations } = statistics(config, packed);
  return div(sub(packed, means), deviations);
}

/** Decodes normalized latents [B, 4 latent_channels, h, w] to images [B, 3, h r, w r]. */
export function decodeFlux2(config: Flux2AutoencoderConfig, latents: Value): Value {
  const { means, deviations } = statistics(config, latents);
  const packed = add(mul(latents, deviations), means);
  const [batch, , height, width] = latents.shape as [number, number, number, number];
  const channels = config.decoder.latent_channels;
  const apart = transpose(reshape(packed, [batch, channels, PATCH, PATCH, height, width]), [0, 1, 4, 2, 5, 3]);
  return decodeLatents(config.decoder, reshape(apart, [batch, channels, PATCH * height, PATCH * width]));
}

/** Stored mean and deviation of each channel of packed latents, [channels, 1, 1]. */
function statistics(
  { epsilon }: Flux2AutoencoderConfig,
  { graph, shape: [, channels] }: Value,
): { readonly means: Value; readonly deviations: Value } {
  const stored = (name: string): Value => reshape(graph.parameter(`bn.${name}`, [channels]), [channels, 1, 1]);
  return { means: stored('running_mean'), deviations: sqrt(add(stored('running_var'), graph.scalar(epsilon))) };
}
