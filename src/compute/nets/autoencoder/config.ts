/** The config of an image autoencoder, with the names of diffusers' `AutoencoderKL`, and the supported autoencoders. */
import { z } from 'zod';
import { CheckpointError } from '../../../core/errors.js';

/** An autoencoder with a normal distribution of latents (Rombach et al., "Latent Diffusion Models", 2022). */
export interface AutoencoderConfig {
  readonly in_channels: number;
  readonly out_channels: number;
  readonly latent_channels: number;
  /** Channels of each level. The image is halved between levels. */
  readonly block_out_channels: readonly number[];
  /** Residual blocks of an encoder level. A decoder level has one more. */
  readonly layers_per_block: number;
  readonly norm_num_groups: number;
  /** Latents that a diffusion model sees are (latent - shift_factor) * scaling_factor. */
  readonly scaling_factor: number;
  readonly shift_factor: number;
  /** Whether a 1x1 convolution follows the encoder, and whether one precedes the decoder. */
  readonly use_quant_conv: boolean;
  readonly use_post_quant_conv: boolean;
  /** Whether all places attend to each other at the lowest level. */
  readonly mid_block_add_attention: boolean;
}

/** The ratio of an image's side to the side of its latents. */
export function reduction({ block_out_channels }: AutoencoderConfig): number {
  return 2 ** (block_out_channels.length - 1);
}

const size = z.int().positive();
/** The class in diffusers whose files these are. */
export const AUTOENCODER_CLASS = 'AutoencoderKL';
/** Both lists name one kind of level throughout. */
const covered = z.looseObject({
  _class_name: z.literal(AUTOENCODER_CLASS),
  act_fn: z.literal('silu').nullish(),
  down_block_types: z.array(z.literal('DownEncoderBlock2D')).nullish(),
  up_block_types: z.array(z.literal('UpDecoderBlock2D')).nullish(),
  latents_mean: z.null().optional(),
  latents_std: z.null().optional(),
});
const schema = z.object({
  in_channels: size.default(3),
  out_channels: size.default(3),
  latent_channels: size.default(4),
  block_out_channels: z.array(size).min(1).default([64]),
  layers_per_block: size.default(1),
  norm_num_groups: size.default(32),
  scaling_factor: z.number().positive().default(0.18215),
  shift_factor: z
    .number()
    .nullish()
    .transform((shift) => shift ?? 0),
  use_quant_conv: z.boolean().default(true),
  use_post_quant_conv: z.boolean().default(true),
  mid_block_add_attention: z.boolean().default(true),
});

/**
 * Reads an autoencoder's `config.json`. Raises CheckpointError, naming `where`, for another class and for unsupported
 * settings.
 */
export function readAutoencoderConfig(json: unknown, where: string): AutoencoderConfig {
  const parsed = schema.safeParse(json);
  const issue = covered.safeParse(json).error?.issues[0] ?? parsed.error?.issues[0];
  if (issue !== undefined || !parsed.success) {
    throw new CheckpointError(
      `${issue?.path.join('.') ?? ''}: ${issue?.message ?? 'is not supported'}; allowed: ${AUTOENCODER_CLASS}`,
      {
        where,
        next: "Name an autoencoder's folder as diffusers saves it.",
      },
    );
  }
  const config: AutoencoderConfig = parsed.data;
  const uneven = config.block_out_channels.find((channels) => channels % config.norm_num_groups !== 0);
  if (uneven !== undefined) {
    throw new CheckpointError(
      `block_out_channels has ${uneven}, which is not a multiple of norm_num_groups ${config.norm_num_groups}`,
      { where },
    );
  }
  return config;
}

/** The content of a checkpoint's config.json, which `readAutoencoderConfig` and diffusers can read. */
export function autoencoderConfigJson(config: AutoencoderConfig): string {
  const levels = config.block_out_channels.length;
  const json = {
    _class_name: AUTOENCODER_CLASS,
    ...config,
    down_block_types: new Array<string>(levels).fill('DownEncoderBlock2D'),
    up_block_types: new Array<string>(levels).fill('UpDecoderBlock2D'),
  };
  return `${JSON.stringify(json, null, 2)}\n`;
}
