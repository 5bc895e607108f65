/** The config of Emu3's vision tokenizer, and the names of its parameters: BAAI's `Emu3VisionVQ`, and the forms in which transformers saves it. */
import { z } from 'zod';
import { CheckpointError } from '../../../core/errors.js';
import type { Shape } from '../../graph/ir.js';

/** Emu3's vision tokenizer (Wang et al., "Emu3", 2024), with BAAI's names. */
export interface Emu3VisionConfig {
  /** The names and the layout of parameters. */
  readonly layout: 'published' | 'transformers';
  /** Number of codes. */
  readonly codebook_size: number;
  /** Channels of latents, including those of the codes. */
  readonly embed_dim: number;
  /** Channels at full resolution. `ch_mult` multiplies them at each level. */
  readonly ch: number;
  /** The image is halved between levels. */
  readonly ch_mult: readonly number[];
  /** Residual blocks of an encoder level. A decoder level has one more. */
  readonly num_res_blocks: number;
  /** Levels at which all places attend to each other. */
  readonly attn_resolutions: readonly number[];
  readonly attention_heads: number;
  /** Frames of a clip that become one. An image is encoded as a clip of that many equal frames. A power of 2. */
  readonly temporal_downsample_factor: number;
}

/** The groups of channels in every norm, which no config gives. */
export const NORM_GROUPS = 32;

/** Side of the square of pixels that one code represents. */
export function patchOf({ ch_mult }: Pick<Emu3VisionConfig, 'ch_mult'>): number {
  return 2 ** (ch_mult.length - 1);
}

/** Number of times that a clip's frames are halved. */
export function timeSteps({ temporal_downsample_factor: factor }: Emu3VisionConfig): number {
  return Math.log2(factor);
}

const size = z.int().positive();
const colours = z.literal(3, 'only 3 is supported: red, green and blue').default(3);
const shared = {
  codebook_size: size.default(32_768),
  embed_dim: size.default(4),
  in_channels: colours,
  out_channels: colours,
  temporal_downsample_factor: size
    .refine((factor) => Number.isInteger(Math.log2(factor)), 'only powers of 2 are supported')
    .default(4),
  num_res_blocks: size.default(2),
  attn_resolutions: z.array(z.int().nonnegative()).default([3]),
};
const single = z.literal(false, 'only false is supported: codes use all channels of the encoder').default(false);
/** Dropout in training. */
const dropout = z.number().default(0);

const published = z
  .strictObject({
    ...shared,
    z_channels: size.default(4),
    double_z: single,
    ch: size.default(256),
    ch_mult: z.array(size).min(1).default([1, 2, 2, 4]),
    dropout,
  })
  .transform((found) => ({ ...found, layout: 'published' as const, attention_heads: 1, attention_width: null }));

const converted = z
  .strictObject({
    ...shared,
    latent_channels: size.default(4),
    double_latent: single,
    base_channels: size.default(256),
    channel_multiplier: z.array(size).min(1).default([1, 2, 2, 4]),
    hidden_size: size.default(1024),
    num_attention_heads: size.default(1),
    attention_dropout: dropout,
  })
  .transform(
    ({ latent_channels, base_channels, channel_multiplier, hidden_size, num_attention_heads: heads, ...rest }) => ({
      ...rest,
      layout: 'transformers' as const,
      z_channels: latent_channels,
      ch: base_channels,
      ch_mult: channel_multiplier,
      attention_heads: heads,
      attention_width: hidden_size,
    }),
  );
type Found = z.output<typeof published> | z.output<typeof converted>;

type Json = Readonly<Record<string, unknown>>;

/**
 * Settings that any config of transformers may hold and that do not affect this network: its origin, and how texts are
 * generated and labeled.
 */
const WITHOUT_EFFECT: ReadonlySet<string> = new Set([
  ...['architectures', 'auto_map', 'dtype', 'model_type', 'torch_dtype', 'transformers_version', 'initializer_range'],
  ...['add_cross_attention', 'chunk_size_feed_forward', 'cross_attention_hidden_size', 'finetuning_task'],
  ...['id2label', 'label2id', 'is_decoder', 'is_encoder_decoder', 'output_attentions', 'output_hidden_states'],
  ...['prefix', 'problem_type', 'pruned_heads', 'return_dict', 'task_specific_params', 'tie_encoder_decoder'],
  ...['tie_word_embeddings', 'tokenizer_class', 'torchscript', 'tf_legacy_loss', 'use_bfloat16'],
  ...['bos_token_id', 'decoder_start_token_id', 'eos_token_id', 'pad_token_id', 'sep_token_id'],
]);

function ownFields(json: Json): Json {
  return Object.fromEntries(Object.entries(json).filter(([key]) => !key.startsWith('_') && !WITHOUT_EFFECT.has(key)));
}

/** The `model_type` of an Emu3 model, which contains the tokenizer and a decoder. */
export const WHOLE = 'emu3';

/** By the `model_type` of config.json. */
const readers: Readonly<Record<string, (json: Json) => Found>> = {
  Emu3VisionVQ: (json) => published.parse(ownFields(json)),
  emu3_vqgan: (json) => converted.parse(ownFields(json)),
  [WHOLE]: (json) => {
    const { vq_config: own } = z.object({ vq_config: z.record(z.string(), z.unknown()) }).parse(json);
    return converted.parse(ownFields(own));
  },
};

/** The types of models that contain Emu3's vision tokenizer. */
export const emu3VisionTypes: readonly string[] = Object.keys(readers);

/**
 * Reads a config.json whose `model_type` is one of `emu3VisionTypes`. Raises CheckpointError, naming `where`, for
 * unsupported settings.
 */
export function readEmu3Vision(json: Json, where: string): Emu3VisionConfig {
  try {
    const found = readers[String(json['model_type'])](json);
    const problem = problemOf(found);
    if (problem !== null) throw new CheckpointError(problem, { where });
    const { layout, codebook_size, embed_dim, ch, ch_mult, num_res_blocks, attn_resolutions } = found;
    const { attention_heads, temporal_downsample_factor } = found;
    const sizes = { codebook_size, embed_dim, ch, ch_mult, num_res_blocks, temporal_downsample_factor };
    return { layout, ...sizes, attn_resolutions, attention_heads };
  } catch (error) {
    if (!(error instanceof z.ZodError)) throw error;
    const [issue] = error.issues;
    throw new CheckpointError([issue.path.join('.'), issue.message].filter((part) => part !== '').join(': '), {
      where,
    });
  }
}

function problemOf(found: Found): string | null {
  const { ch, ch_mult, embed_dim, z_channels, attn_resolutions, attention_heads: heads, attention_width } = found;
  if (embed_dim !== z_channels) {
    return `codes have ${embed_dim} channels and latents ${z_channels}; the numbers must be equal`;
  }
  const widths = ch_mult.map((times) => ch * times);
  const uneven = widths.find((width) => width % NORM_GROUPS !== 0);
  if (uneven !== undefined) {
    return `a level has ${uneven} channels, which is not a multiple of the ${NORM_GROUPS} groups`;
  }
  if (attention_width === null) return null;
  const attending = [...widths.filter((_, level) => attn_resolutions.includes(level)), widths[widths.length - 1]];
  const other = attending.find((width) => width !== attention_width);
  if (other !== undefined) {
    return `hidden_size is ${attention_width}, but attention has ${other} channels`;
  }
  return attention_width % heads === 0
    ? null
    : `hidden_size ${attention_width} is not a multiple of its ${heads} heads`;
}

export type Half = 'encoder' | 'decoder';

export interface Naming {
  /** The prefix of a level's number. */
  readonly levels: Readonly<Record<Half, string>>;
  /** The layers between the levels and the latents. */
  readonly middle: string;
  /** The layers of an attention, after its name. */
  readonly projections: Readonly<Record<'q' | 'k' | 'v' | 'out', string>>;
  /** The norm before an attention. */
  readonly normOf: (attention: string) => string;
  /** The shape of an attention's layers. */
  readonly matrix: (channels: number) => Shape;
}

export const namings: Readonly<Record<Emu3VisionConfig['layout'], Naming>> = {
  published: {
    levels: { encoder: 'encoder.down', decoder: 'decoder.up' },
    middle: 'mid',
    projections: { q: 'q', k: 'k', v: 'v', out: 'proj_out' },
    normOf: (attention) => `${attention}.norm`,
    // As the kernels of a 1x1 convolution.
    matrix: (channels) => [channels, channels, 1, 1],
  },
  transformers: {
    levels: { encoder: 'encoder.down_block.down', decoder: 'decoder.up_block.up' },
    middle: 'middle_block',
    projections: { q: 'q_proj', k: 'k_proj', v: 'v_proj', out: 'out_proj' },
    // attn.<i> and attn_norms.<i> at a level, attn_1 and attn_norm in the middle.
    normOf: (attention) => attention.replace(/\.attn\.(\d+)$/, '.attn_norms.$1').replace(/\.attn_1$/, '.attn_norm'),
    matrix: (channels) => [channels, channels],
  },
};
