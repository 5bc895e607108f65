/** The vision part of a Hugging Face `config.json`. The defaults are those of transformers' configuration classes. */
import { z } from 'zod';
import { CheckpointError } from '../../core/errors.js';
import type { VisionConfig, VisionFamily } from './config.js';

const size = z.int().positive();
const shared = {
  depth: size.default(32),
  num_heads: size.default(16),
  patch_size: size.default(14),
  temporal_patch_size: size.default(2),
  spatial_merge_size: size.default(2),
};
/** `in_chans` in older files. */
const colours = z.literal(3).nullish();

type Sizes = Omit<VisionConfig, keyof z.output<typeof tokens> | 'family'>;

const tokens = z.object({
  image_token_id: z.int().default(151_655),
  video_token_id: z.int().default(151_656),
  vision_start_token_id: z.int().default(151_652),
  vision_end_token_id: z.int().default(151_653),
});

const families: Readonly<Record<VisionFamily, z.ZodType<Sizes>>> = {
  qwen2_vl: z
    .object({
      ...shared,
      in_channels: colours,
      in_chans: colours,
      embed_dim: size.default(1280),
      hidden_size: size.default(3584),
      mlp_ratio: z.number().positive().default(4),
      hidden_act: z.literal('quick_gelu').default('quick_gelu'),
    })
    .transform(({ embed_dim, hidden_size, mlp_ratio, ...rest }) => ({
      ...sizesOf(rest),
      width: embed_dim,
      inner: Math.trunc(embed_dim * mlp_ratio),
      out_width: hidden_size,
      windows: null,
      tokens_per_second: null,
    })),
  qwen2_5_vl: z
    .object({
      ...shared,
      in_channels: colours,
      in_chans: colours,
      hidden_size: size.default(3584),
      intermediate_size: size.default(3420),
      out_hidden_size: size.default(3584),
      window_size: size.default(112),
      fullatt_block_indexes: z.array(z.int().nonnegative()).default([7, 15, 23, 31]),
      tokens_per_second: z.number().nonnegative().default(4),
      hidden_act: z.literal('silu').default('silu'),
    })
    .transform((found) => ({
      ...sizesOf(found),
      width: found.hidden_size,
      inner: found.intermediate_size,
      out_width: found.out_hidden_size,
      windows: { window_size: found.window_size, fullatt_block_indexes: found.fullatt_block_indexes },
      tokens_per_second: found.tokens_per_second,
    })),
};

type Shared = Pick<VisionConfig, keyof typeof shared>;

function sizesOf({ depth, num_heads, patch_size, temporal_patch_size, spatial_merge_size }: Shared): Shared {
  return { depth, num_heads, patch_size, temporal_patch_size, spatial_merge_size };
}

/** The families that see, by `model_type`. */
export const seeingTypes: readonly string[] = Object.keys(families);

/**
 * Reads the vision part of a config.json, whose tokens are `width` wide. Raises CheckpointError, naming `where`, for a model without one or with one
 * that is not supported.
 */
export function readVision(json: Readonly<Record<string, unknown>>, width: number, where: string): VisionConfig {
  const type = json['model_type'];
  const family = typeof type === 'string' && Object.hasOwn(families, type) ? (type as VisionFamily) : null;
  if (family === null || json['vision_config'] === undefined) {
    throw new CheckpointError('this model does not see', {
      where,
      next: `Name a model of one of these types, with its vision_config: ${seeingTypes.join(', ')}.`,
    });
  }
  const parsed = z.object({ vision_config: families[family], ...tokens.shape }).safeParse(json);
  if (!parsed.success) {
    const [issue] = parsed.error.issues;
    throw new CheckpointError(`${issue.path.join('.')}: ${issue.message}`, { where });
  }
  const { vision_config: found, ...ids } = parsed.data;
  const config = { family, ...found, ...ids };
  if (config.out_width !== width) {
    throw new CheckpointError(`the connector's tokens are ${config.out_width} wide, the decoder's ${width}`, { where });
  }
  if (config.width % (4 * config.num_heads) !== 0) {
    throw new CheckpointError(
      `vision_config: a width of ${config.width} is no multiple of four times its ${config.num_heads} heads`,
      { where },
    );
  }
  const { windows, patch_size, spatial_merge_size } = config;
  if (windows !== null && windows.window_size < patch_size * spatial_merge_size) {
    throw new CheckpointError(
      `vision_config.window_size: found ${windows.window_size}; allowed: at least patch_size x spatial_merge_size (${patch_size * spatial_merge_size})`,
      { where },
    );
  }
  return config;
}

/** A `vision_config` that says the same. */
export function visionJson(config: VisionConfig): object {
  const { family, width, inner, out_width, windows, tokens_per_second } = config;
  const sizes = { ...sizesOf(config), in_channels: 3, model_type: `${family}_vision` };
  if (windows === null) {
    return { ...sizes, embed_dim: width, hidden_size: out_width, mlp_ratio: inner / width, hidden_act: 'quick_gelu' };
  }
  return {
    ...sizes,
    hidden_size: width,
    intermediate_size: inner,
    out_hidden_size: out_width,
    ...windows,
    tokens_per_second,
    hidden_act: 'silu',
  };
}
