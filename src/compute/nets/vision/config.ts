/**
 * The vision part of a model: the encoders of Qwen2-VL, Qwen2.5-VL, Qwen3-VL and SmolVLM with their connector. Its config, read
 * from a Hugging Face `config.json`, and its parameters by name.
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
export type VisionFamily = 'qwen2_vl' | 'qwen2_5_vl' | 'qwen3_vl' | 'smolvlm';

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
  /**
   * The rows of the table of learned positions, which form a square that is stretched over each image. Null: the
   * encoder has only rotary positions.
   */
  readonly num_position_embeddings: number | null;
  /**
   * The blocks whose rows also become tokens (Meng et al., "DeepStack", 2024). The decoder adds those of the first one
   * after its first block, and so on. Ascending. Empty: none.
   */
  readonly deepstack_visual_indexes: readonly number[];
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
const MERGER = `${VISUAL}merger.`;
const DEEP_MERGERS = `${VISUAL}deepstack_merger_list.`;
/** The connector of families whose last norm belongs to the encoder. */
export const CONNECTOR = `${VISUAL}connector.`;
const CONNECTORS = [MERGER, DEEP_MERGERS, CONNECTOR];

/** The part that a parameter belongs to. */
export function partOf(parameter: string): keyof TrainedParts {
  if (CONNECTORS.some((prefix) => parameter.startsWith(prefix))) return 'mm_mlp';
  return parameter.startsWith(VISUAL) ? 'mm_vision' : 'mm_llm';
}

type Kind = 'embedding' | 'kernel' | 'weight' | 'residual' | 'norm' | 'bias';
type Parameters = Map<string, { readonly shape: Shape; readonly kind: Kind }>;

/** The names of the layers of a block's feed-forward part or of a merger, in their order. */
interface TwoLayers {
  readonly first: string;
  readonly second: string;
}

export type ClipForm = 'one input' | 'timed steps' | 'frames';

/** The names of an encoder's layers. */
interface EncoderNames {
  /** The patch embedding, and the table of learned positions. */
  readonly patches: string;
  readonly positions: string;
  /** The prefix of the blocks, followed by their numbers. */
  readonly blocks: string;
  /** The norms before attention and before the feed-forward part. */
  readonly norms: readonly [attention: string, feedForward: string];
  readonly attention: string;
  /** The projection after attention. */
  readonly output: string;
}

/** The differences between the families. */
interface Layers {
  readonly names: EncoderNames;
  readonly norm: 'rms' | 'layer';
  /** Queries, keys and values as one layer or as three. */
  readonly projections: readonly ['qkv'] | readonly ['q_proj', 'k_proj', 'v_proj'];
  /** Whether queries and keys are rotated by the position of their patch. */
  readonly rotates: boolean;
  /** A feed-forward part without a gate has two layers. */
  readonly feedForward: 'swiglu' | (TwoLayers & { readonly activation: 'quick_gelu' | 'gelu_tanh' });
  /** Two layers with GELU between them after a norm, or one layer without bias after the last norm of the encoder. */
  readonly merger: (TwoLayers & { readonly norm: string }) | { readonly norm: string; readonly only: string };
  /** Whether the patch embedding has a bias. */
  readonly patchBias: boolean;
  /** Whether its kernels have an axis of frames. */
  readonly kernelFrames: boolean;
  /** The form of a clip in a prompt: one input, one for each time step with its time in words before it, or frames. */
  readonly clips: ClipForm;
  /** Whether the tokens of an image have positions on three axes. Otherwise they count like words. */
  readonly placesImages: boolean;
}

const olderMerger = { norm: 'ln_q', first: 'mlp.0', second: 'mlp.2' };
const newer: TwoLayers = { first: 'linear_fc1', second: 'linear_fc2' };
const qwen = {
  names: {
    patches: `${VISUAL}patch_embed.proj`,
    positions: `${VISUAL}pos_embed`,
    blocks: `${VISUAL}blocks.`,
    norms: ['norm1', 'norm2'],
    attention: 'attn',
    output: 'proj',
  },
  projections: ['qkv'],
  rotates: true,
  kernelFrames: true,
  placesImages: true,
} as const;

export const layersOf: Readonly<Record<VisionFamily, Layers>> = {
  qwen2_vl: {
    ...qwen,
    norm: 'layer',
    feedForward: { first: 'fc1', second: 'fc2', activation: 'quick_gelu' },
    merger: olderMerger,
    patchBias: false,
    clips: 'one input',
  },
  qwen2_5_vl: {
    ...qwen,
    norm: 'rms',
    feedForward: 'swiglu',
    merger: olderMerger,
    patchBias: false,
    clips: 'one input',
  },
  qwen3_vl: {
    ...qwen,
    norm: 'layer',
    feedForward: { ...newer, activation: 'gelu_tanh' },
    merger: { ...newer, norm: 'norm' },
    patchBias: true,
    clips: 'timed steps',
  },
  // Idefics3's form: a SigLIP encoder, whose squares of patches become tokens ("pixel shuffle").
  smolvlm: {
    names: {
      patches: `${VISUAL}embeddings.patch_embedding`,
      positions: `${VISUAL}embeddings.position_embedding`,
      blocks: `${VISUAL}encoder.layers.`,
      norms: ['layer_norm1', 'layer_norm2'],
      attention: 'self_attn',
      output: 'out_proj',
    },
    norm: 'layer',
    projections: ['q_proj', 'k_proj', 'v_proj'],
    rotates: false,
    feedForward: { first: 'fc1', second: 'fc2', activation: 'gelu_tanh' },
    merger: { norm: `${VISUAL}post_layernorm`, only: `${CONNECTOR}modality_projection.proj` },
    patchBias: true,
    kernelFrames: false,
    clips: 'frames',
    placesImages: false,
  },
};

/** The shape of the kernels of the patch embedding. */
export function kernelShape({ family, width, temporal_patch_size, patch_size: side }: VisionConfig): Shape {
  return [width, 3, ...(layersOf[family].kernelFrames ? [temporal_patch_size] : []), side, side];
}

/** A merger, which makes a token of each square of rows. */
export interface Merger {
  /** The prefix of its parameters. */
  readonly name: string;
  /** What its norm normalizes: each row, or the joined rows of a square. */
  readonly normalizes: 'rows' | 'squares';
}

/** The merger of the last block's rows, followed by those of `deepstack_visual_indexes`. */
export function mergersOf({
  deepstack_visual_indexes: deep,
}: Pick<VisionConfig, 'deepstack_visual_indexes'>): readonly [Merger, ...Merger[]] {
  const deeper = deep.map((_, i) => ({ name: `${DEEP_MERGERS}${i}.`, normalizes: 'squares' }) as const);
  return [{ name: MERGER, normalizes: 'rows' }, ...deeper];
}

/** Every parameter's name, shape and kind, in checkpoint order. */
export function visionParameters(config: VisionConfig): Parameters {
  const { width, inner, depth, out_width, spatial_merge_size: merge } = config;
  const { names, norm, projections, feedForward, merger, patchBias } = layersOf[config.family];
  const out: Parameters = new Map();
  const linear = (name: string, outputs: number, inputs: number, kind: Kind = 'weight'): void => {
    out.set(`${name}.weight`, { shape: [outputs, inputs], kind });
    out.set(`${name}.bias`, { shape: [outputs], kind: 'bias' });
  };
  const normalization = (name: string, size = width): void => {
    out.set(`${name}.weight`, { shape: [size], kind: 'norm' });
    if (norm === 'layer') out.set(`${name}.bias`, { shape: [size], kind: 'bias' });
  };
  out.set(`${names.patches}.weight`, { shape: kernelShape(config), kind: 'kernel' });
  if (patchBias) out.set(`${names.patches}.bias`, { shape: [width], kind: 'bias' });
  const { num_position_embeddings: positions } = config;
  if (positions !== null) out.set(`${names.positions}.weight`, { shape: [positions, width], kind: 'embedding' });
  for (let i = 0; i < depth; i++) {
    const block = `${names.blocks}${i}`;
    for (const name of names.norms) normalization(`${block}.${name}`);
    for (const name of projections) {
      linear(`${block}.${names.attention}.${name}`, (3 / projections.length) * width, width);
    }
    linear(`${block}.${names.attention}.${names.output}`, width, width, 'residual');
    if (feedForward === 'swiglu') {
      linear(`${block}.mlp.gate_proj`, inner, width);
      linear(`${block}.mlp.up_proj`, inner, width);
      linear(`${block}.mlp.down_proj`, width, inner, 'residual');
    } else {
      linear(`${block}.mlp.${feedForward.first}`, inner, width);
      linear(`${block}.mlp.${feedForward.second}`, width, inner, 'residual');
    }
  }
  const square = merge ** 2 * width;
  if ('only' in merger) {
    normalization(merger.norm);
    out.set(`${merger.only}.weight`, { shape: [out_width, square], kind: 'weight' });
    return out;
  }
  for (const { name, normalizes } of mergersOf(config)) {
    normalization(`${name}${merger.norm}`, normalizes === 'rows' ? width : square);
    linear(`${name}${merger.first}`, square, square);
    linear(`${name}${merger.second}`, out_width, square);
  }
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
/** The rotation of all three encoders. */
const rotation = z
  .object({ rope_type: z.literal('axial').nullish(), rope_theta: z.literal(10_000).nullish() })
  .nullish();

type Sizes = Omit<VisionConfig, keyof z.output<typeof tokens> | 'family'>;

const tokens = z.object({
  image_token_id: z.int().default(151_655),
  video_token_id: z.int().default(151_656),
  vision_start_token_id: z.int().default(151_652),
  vision_end_token_id: z.int().default(151_653),
});

/** The fields of encoders without learned positions and without DeepStack. */
export const withoutTables = { num_position_embeddings: null, deepstack_visual_indexes: [] } as const;

/** The fields of config.json that SmolVLM's vision config has in other places. */
const smolvlmSizes = z
  .object({
    hidden_size: size.default(1152),
    intermediate_size: size.default(3072),
    num_hidden_layers: size.default(12),
    num_attention_heads: size.default(16),
    num_channels: colours,
    image_size: size.default(224),
    patch_size: size.default(32),
    hidden_act: z.literal('gelu_pytorch_tanh').default('gelu_pytorch_tanh'),
    layer_norm_eps: z.literal(1e-6).default(1e-6),
    // From outside the vision config.
    scale_factor: size,
    out_width: size,
  })
  .transform((found) => ({
    spatial_merge_size: found.scale_factor,
    out_width: found.out_width,
    depth: found.num_hidden_layers,
    num_heads: found.num_attention_heads,
    patch_size: found.patch_size,
    temporal_patch_size: 1,
    width: found.hidden_size,
    inner: found.intermediate_size,
    windows: null,
    tokens_per_second: null,
    num_position_embeddings: Math.floor(found.image_size / found.patch_size) ** 2,
    deepstack_visual_indexes: [],
  }));

const families: Readonly<Record<VisionFamily, z.ZodType<Sizes>>> = {
  qwen2_vl: z
    .object({
      ...shared,
      in_channels: colours,
      in_chans: colours,
      rope_parameters: rotation,
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
      ...withoutTables,
    })),
  qwen2_5_vl: z
    .object({
      ...shared,
      in_channels: colours,
      in_chans: colours,
      rope_parameters: rotation,
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
      ...withoutTables,
    })),
  qwen3_vl: z
    .object({
      ...shared,
      depth: size.default(27),
      patch_size: size.default(16),
      in_channels: colours,
      rope_parameters: rotation,
      hidden_size: size.default(1152),
      intermediate_size: size.default(4304),
      out_hidden_size: size.default(3584),
      num_position_embeddings: size.default(2304),
      deepstack_visual_indexes: z.array(z.int().nonnegative()).default([8, 16, 24]),
      hidden_act: z.literal('gelu_pytorch_tanh').default('gelu_pytorch_tanh'),
    })
    .transform((found) => ({
      ...sizesOf(found),
      width: found.hidden_size,
      inner: found.intermediate_size,
      out_width: found.out_hidden_size,
      windows: null,
      tokens_per_second: null,
      num_position_embeddings: found.num_position_embeddings,
      deepstack_visual_indexes: found.deepstack_visual_indexes,
    })),
  smolvlm: smolvlmSizes,
};

type Shared = Pick<VisionConfig, keyof typeof shared>;

function sizesOf({ depth, num_heads, patch_size, temporal_patch_size, spatial_merge_size }: Shared): Shared {
  return { depth, num_heads, patch_size, temporal_patch_size, spatial_merge_size };
}

/** The families that see, by `model_type`. */
export const visionDecoderTypes: readonly string[] = Object.keys(families);

/** SmolVLM's config.json with all that the encoder needs in its vision config, and one token for images and marks. */
function withOutside(json: Readonly<Record<string, unknown>>, width: number): Readonly<Record<string, unknown>> {
  const image = json['image_token_id'] ?? 128_257;
  const vision_config = {
    ...(json['vision_config'] as object),
    scale_factor: json['scale_factor'] ?? 2,
    out_width: width,
  };
  const ids = Object.fromEntries(Object.keys(tokens.shape).map((name) => [name, image]));
  return { ...json, ...ids, vision_config };
}

/**
 * Reads the vision part of a config.json, whose tokens are `width` wide. Raises CheckpointError, naming `where`, for a
 * model without one or with an unsupported one.
 */
export function readVision(json: Readonly<Record<string, unknown>>, width: number, where: string): VisionConfig {
  const type = json['model_type'];
  const family = typeof type === 'string' && Object.hasOwn(families, type) ? (type as VisionFamily) : null;
  if (family === null || json['vision_config'] === undefined) {
    const found = JSON.stringify(type);
    const problem =
      json['vision_config'] === undefined
        ? `model_type ${found} without vision_config reads no images`
        : `the vision encoder of model_type ${found} is not supported, only its text model`;
    throw new CheckpointError(problem, {
      where,
      next: `Name a model of one of these types, with its vision_config: ${visionDecoderTypes.join(', ')}.`,
    });
  }
  const whole = family === 'smolvlm' ? withOutside(json, width) : json;
  const parsed = z.object({ vision_config: families[family], ...tokens.shape }).safeParse(whole);
  if (!parsed.success) {
    const [issue] = parsed.error.issues;
    throw new CheckpointError(`${issue.path.join('.')}: ${issue.message}`, { where });
  }
  const { vision_config: found, ...ids } = parsed.data;
  const config = { family, ...found, ...ids };
  if (config.out_width !== width) {
    throw new CheckpointError(`the connector's tokens are ${config.out_width} wide, the decoder's ${width}`, { where });
  }
  const step = layersOf[family].rotates ? 4 : 1;
  if (config.width % (step * config.num_heads) !== 0) {
    throw new CheckpointError(
      `vision_config: width ${config.width} is not a multiple of ${step === 4 ? 'four times ' : ''}its ${config.num_heads} heads`,
      { where },
    );
  }
  const { windows, patch_size, spatial_merge_size, depth, deepstack_visual_indexes: deep } = config;
  if (deep.some((block, i) => block >= depth || block <= (deep[i - 1] ?? -1))) {
    throw new CheckpointError(
      `vision_config.deepstack_visual_indexes: found [${deep.join(', ')}]; allowed: ascending numbers of blocks below depth, ${depth}`,
      { where },
    );
  }
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
  const { num_position_embeddings, deepstack_visual_indexes } = config;
  const sizes = { ...sizesOf(config), in_channels: 3, model_type: `${family}_vision` };
  const widths = { hidden_size: width, intermediate_size: inner, out_hidden_size: out_width };
  const own: Readonly<Record<VisionFamily, object>> = {
    qwen2_vl: { embed_dim: width, hidden_size: out_width, mlp_ratio: inner / width, hidden_act: 'quick_gelu' },
    qwen2_5_vl: { ...widths, ...windows, tokens_per_second, hidden_act: 'silu' },
    qwen3_vl: { ...widths, num_position_embeddings, deepstack_visual_indexes, hidden_act: 'gelu_pytorch_tanh' },
    smolvlm: {
      ...{ hidden_size: width, intermediate_size: inner, num_hidden_layers: config.depth },
      ...{ num_attention_heads: config.num_heads, hidden_act: 'gelu_pytorch_tanh' },
      image_size: Math.sqrt(num_position_embeddings ?? 0) * config.patch_size,
    },
  };
  return { ...sizes, ...own[family] };
}
