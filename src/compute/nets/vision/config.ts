/**
 * The vision part of a model: the encoders of Qwen2-VL and Qwen2.5-VL with their connector. Its config, read from a Hugging Face `config.json`, and its
 * parameters by name.
 */
import { z } from 'zod';
import { CheckpointError } from '../../../core/errors.js';
import type { Shape } from '../../graph/ir.js';

/** The cutting of images into patches, in the names of Hugging Face's configs. */
export interface PatchSizes {
  /** Side of a patch in pixels. */
  readonly patch_size: number;
  /** Frames that one patch reaches through. */
  readonly temporal_patch_size: number;
  /** Side of the square of patches that becomes one token. */
  readonly spatial_merge_size: number;
}

/** The tokens of images, by the names of a config.json. */
export interface ImageTokens {
  readonly image_token_id: number;
  readonly video_token_id: number;
}

/** With the tokens that surround an image. */
export interface MarkedImageTokens extends ImageTokens {
  readonly vision_start_token_id: number;
  readonly vision_end_token_id: number;
}

/** By the `model_type` of config.json. */
export type VisionFamily = 'qwen2_vl' | 'qwen2_5_vl';

export interface VisionConfig extends PatchSizes, MarkedImageTokens {
  readonly family: VisionFamily;
  readonly depth: number;
  /** The width of the encoder's rows. */
  readonly width: number;
  /** The width inside its feed-forward layers. */
  readonly inner: number;
  readonly num_heads: number;
  /** The width of a token in the decoder. */
  readonly out_width: number;
  /**
   * Side in pixels of the windows within which patches attend to each other, and the blocks that attend to the whole
   * frame. Null: all blocks do.
   */
  readonly windows: { readonly window_size: number; readonly fullatt_block_indexes: readonly number[] } | null;
  /** The weight of a second in the temporal positions of a clip. Null: each time step counts 1. */
  readonly tokens_per_second: number | null;
}

/** The parts of a model, each trained or frozen, with the names of Qwen's training scripts. */
export interface TrainedParts {
  /** The encoder. */
  readonly mm_vision: boolean;
  /** The connector, which makes the decoder's tokens of its rows. */
  readonly mm_mlp: boolean;
  /** The decoder with embeddings and head. */
  readonly mm_llm: boolean;
}

export const VISUAL = 'visual.';
export const MERGER = `${VISUAL}merger.`;

/** The part that a parameter belongs to. */
export function partOf(parameter: string): keyof TrainedParts {
  if (parameter.startsWith(MERGER)) return 'mm_mlp';
  return parameter.startsWith(VISUAL) ? 'mm_vision' : 'mm_llm';
}

type Kind = 'kernel' | 'weight' | 'residual' | 'norm' | 'bias';
type Parameters = Map<string, { readonly shape: Shape; readonly kind: Kind }>;

/** The differences between the two families. */
interface Layers {
  readonly norm: 'rms' | 'layer';
  readonly feedForward: 'swiglu' | 'quick_gelu';
}

export const layersOf: Readonly<Record<VisionFamily, Layers>> = {
  qwen2_vl: { norm: 'layer', feedForward: 'quick_gelu' },
  qwen2_5_vl: { norm: 'rms', feedForward: 'swiglu' },
};

/** Every parameter's name, shape and kind, in checkpoint order. */
export function visionParameters(config: VisionConfig): Parameters {
  const { width, inner, depth, out_width, patch_size: side, temporal_patch_size, spatial_merge_size: merge } = config;
  const { norm, feedForward } = layersOf[config.family];
  const out: Parameters = new Map();
  const linear = (name: string, outputs: number, inputs: number, kind: Kind = 'weight'): void => {
    out.set(`${name}.weight`, { shape: [outputs, inputs], kind });
    out.set(`${name}.bias`, { shape: [outputs], kind: 'bias' });
  };
  const normalization = (name: string): void => {
    out.set(`${name}.weight`, { shape: [width], kind: 'norm' });
    if (norm === 'layer') out.set(`${name}.bias`, { shape: [width], kind: 'bias' });
  };
  out.set(`${VISUAL}patch_embed.proj.weight`, { shape: [width, 3, temporal_patch_size, side, side], kind: 'kernel' });
  for (let i = 0; i < depth; i++) {
    const block = `${VISUAL}blocks.${i}`;
    normalization(`${block}.norm1`);
    normalization(`${block}.norm2`);
    linear(`${block}.attn.qkv`, 3 * width, width);
    linear(`${block}.attn.proj`, width, width, 'residual');
    if (feedForward === 'swiglu') {
      linear(`${block}.mlp.gate_proj`, inner, width);
      linear(`${block}.mlp.up_proj`, inner, width);
      linear(`${block}.mlp.down_proj`, width, inner, 'residual');
    } else {
      linear(`${block}.mlp.fc1`, inner, width);
      linear(`${block}.mlp.fc2`, width, inner, 'residual');
    }
  }
  const square = merge ** 2 * width;
  normalization(`${MERGER}ln_q`);
  linear(`${MERGER}mlp.0`, square, square);
  linear(`${MERGER}mlp.2`, out_width, square);
  return out;
}

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
export const visionDecoderTypes: readonly string[] = Object.keys(families);

/**
 * Reads the vision part of a config.json, whose tokens are `width` wide. Raises CheckpointError, naming `where`, for a
 * model without one or with an unsupported one.
 */
export function readVision(json: Readonly<Record<string, unknown>>, width: number, where: string): VisionConfig {
  const type = json['model_type'];
  const family = typeof type === 'string' && Object.hasOwn(families, type) ? (type as VisionFamily) : null;
  if (family === null || json['vision_config'] === undefined) {
    throw new CheckpointError('this model does not see', {
      where,
      next: `Name a model of one of these types, with its vision_config: ${visionDecoderTypes.join(', ')}.`,
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
      `vision_config: width ${config.width} is not a multiple of four times its ${config.num_heads} heads`,
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

/** The equivalent `vision_config`. */
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
