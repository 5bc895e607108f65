/**
 * Language models by their Hugging Face `config.json`: which of them this program computes, and what each says without writing it. The
 * defaults are those of transformers' configuration classes.
 */
import { z } from 'zod';
import { CheckpointError } from '../../core/errors.js';
import type { DecoderConfig, SeeingConfig } from './config.js';
import { readVision, visionJson } from '../vision/architecture.js';
import { yarnMagnitude, type RopeScaling } from './rope.js';

/** A model as its folder describes it. */
export interface Architecture {
  readonly config: DecoderConfig;
  /** The most tokens that its positions were made for; null where nothing says so. */
  readonly contextSize: number | null;
}

const size = z.int().positive();
const base = z.object({
  vocab_size: size,
  hidden_size: size,
  intermediate_size: size,
  num_hidden_layers: size,
  num_attention_heads: size,
  num_key_value_heads: size.nullish(),
  head_dim: size.nullish(),
  rms_norm_eps: z.number().positive().nullish(),
  rope_theta: z.number().positive().nullish(),
  rope_scaling: z.record(z.string(), z.unknown()).nullish(),
  rope_parameters: z.record(z.string(), z.unknown()).nullish(),
  partial_rotary_factor: z.number().nullish(),
  max_position_embeddings: size.nullish(),
  tie_word_embeddings: z.boolean().nullish(),
  hidden_act: z.string().nullish(),
  attention_bias: z.boolean().nullish(),
  mlp_bias: z.boolean().nullish(),
  sliding_window: size.nullish(),
  use_sliding_window: z.boolean().nullish(),
  max_window_layers: z.int().nonnegative().nullish(),
  layer_types: z.array(z.string()).nullish(),
});
type HubConfig = z.output<typeof base>;

/** What a family adds to the sizes. */
type Traits = Pick<
  DecoderConfig,
  'attention_bias' | 'attention_output_bias' | 'mlp_bias' | 'qk_norm' | 'sliding_window' | 'sliding_layers'
>;

interface Family {
  readonly traits: (config: HubConfig) => Traits;
  readonly eps: number;
  readonly theta: number;
  readonly context: number;
  /** Absent `head_dim`, where it is not hidden_size / num_attention_heads. */
  readonly headDim?: number;
  /** True where `head_dim` is not read. */
  readonly evenHeads?: true;
  /** Where the text model's settings lie in the file of a model that sees, too. */
  readonly nested?: readonly string[];
  /** How its heads are divided over the axes of pictures where the file does not say it; absent: it has no eyes that can be read. */
  readonly sections?: readonly number[];
}

const plain = { attention_bias: false } as const;

const llama: Family = {
  traits: ({ attention_bias, mlp_bias }) => ({
    attention_bias: attention_bias ?? false,
    attention_output_bias: attention_bias ?? false,
    mlp_bias: mlp_bias ?? false,
  }),
  eps: 1e-6,
  theta: 10_000,
  context: 2048,
};

const qwen2: Family = {
  traits: (config) => ({ attention_bias: true, ...qwenWindow(config, 28) }),
  eps: 1e-6,
  theta: 10_000,
  context: 32_768,
};

const qwenVision: Family = {
  traits: (config) => ({ attention_bias: true, ...qwenWindow(config, 80) }),
  eps: 1e-5,
  theta: 1_000_000,
  context: 32_768,
  evenHeads: true,
  nested: ['text_config'],
  sections: [16, 24, 24],
};

/** By `model_type`. */
const families: Readonly<Record<string, Family>> = {
  llama,
  mistral: {
    traits: (config) => ({
      ...plain,
      // A file without the key means 4096 columns, one with null means all.
      ...window(config.sliding_window === undefined ? 4096 : config.sliding_window, config.layer_types),
    }),
    eps: 1e-6,
    theta: 10_000,
    context: 131_072,
  },
  qwen2,
  qwen3: {
    traits: (config) => ({
      attention_bias: config.attention_bias ?? false,
      attention_output_bias: config.attention_bias ?? false,
      qk_norm: true,
      ...qwenWindow(config, 28),
    }),
    eps: 1e-6,
    theta: 10_000,
    context: 32_768,
    headDim: 128,
  },
  qwen2_vl: qwenVision,
  qwen2_vl_text: qwenVision,
  qwen2_5_vl: qwenVision,
  qwen2_5_vl_text: qwenVision,
  emu3: { ...llama, traits: () => plain, eps: 1e-5, theta: 1_000_000, context: 9216, nested: ['text_config'] },
  emu3_text_model: { ...llama, traits: () => plain, eps: 1e-5, theta: 1_000_000, context: 9216 },
};

/** Names that files of remote code carry instead. */
const aliases: Readonly<Record<string, string>> = { Emu3: 'emu3' };

/** The `model_type`s that can be read. */
export const modelTypes: readonly string[] = Object.keys(families);

/** Which parts of a model are read. */
export type ReadPart = 'words' | 'words and pictures';

/**
 * Reads a `config.json`; of a model that sees, its eyes where `part` asks for them. Raises CheckpointError, naming `where`, for a model that is not covered or whose settings cannot be computed; the message
 * lists what is.
 */
export function readArchitecture(json: unknown, where: string, part: ReadPart = 'words'): Architecture {
  const outer = z.looseObject({ model_type: z.string() }).safeParse(json);
  const type = outer.success ? (aliases[outer.data.model_type] ?? outer.data.model_type) : null;
  const family = type !== null && Object.hasOwn(families, type) ? families[type] : null;
  if (family === null || !outer.success) {
    const found = type === null ? 'it names no model_type' : `model_type '${type}' is not covered`;
    throw new CheckpointError(`${found}; covered: ${modelTypes.join(', ')}`, {
      where,
      next: 'Name a model of one of these families, converted to the Hugging Face layout.',
    });
  }
  const quantized = outer.data['quantization_config'] ?? null;
  if (quantized !== null) {
    const { quant_method: method = null } = Object(quantized) as { readonly quant_method?: unknown };
    throw new CheckpointError(
      `quantized weights (quantization_config, quant_method ${JSON.stringify(method)}) are not covered; covered: F32, F16, BF16`,
      {
        where,
        next: 'Name the model that it was quantized from.',
      },
    );
  }
  const nested = (family.nested ?? []).map((key) => outer.data[key]).find((inner) => inner !== undefined);
  // Newer files repeat outside what holds for the whole model.
  const merged = typeof nested === 'object' && nested !== null ? { ...outer.data, ...nested } : outer.data;
  const parsed = base.safeParse(merged);
  if (!parsed.success) {
    const [issue] = parsed.error.issues;
    throw new CheckpointError(`${issue.path.join('.')}: ${issue.message}`, { where });
  }
  const read = toArchitecture(parsed.data, family, where);
  if (part === 'words') return read;
  const vision = readVision(outer.data, read.config.hidden_size, where);
  const rope = parsed.data.rope_parameters ?? parsed.data.rope_scaling ?? {};
  const sections = z.array(size).safeParse(rope['mrope_section']).data ?? family.sections ?? [];
  return { ...read, config: { ...read.config, vision, mrope_section: sections } };
}

function toArchitecture(config: HubConfig, family: Family, where: string): Architecture {
  const { hidden_size, num_attention_heads, num_hidden_layers, hidden_act } = config;
  if (hidden_act !== undefined && hidden_act !== null && hidden_act !== 'silu') {
    throw new CheckpointError(`hidden_act '${hidden_act}' is not covered; covered: silu`, { where });
  }
  const even = family.headDim ?? hidden_size / num_attention_heads;
  const head_dim = family.evenHeads === true ? hidden_size / num_attention_heads : (config.head_dim ?? even);
  if (!Number.isInteger(head_dim)) {
    throw new CheckpointError(
      `hidden_size ${hidden_size} is not a multiple of num_attention_heads ${num_attention_heads}`,
      { where },
    );
  }
  const partial = config.rope_parameters?.['partial_rotary_factor'] ?? config.partial_rotary_factor ?? 1;
  if (partial !== 1) {
    throw new CheckpointError(`partial_rotary_factor ${JSON.stringify(partial)} is not covered; covered: 1`, { where });
  }
  // Newer files hold everything of the rotation in one place.
  const rope = config.rope_parameters ?? config.rope_scaling ?? {};
  const theta = typeof rope['rope_theta'] === 'number' ? rope['rope_theta'] : (config.rope_theta ?? family.theta);
  const contextSize = config.max_position_embeddings ?? family.context;
  const scaling = readScaling(rope, contextSize, where);
  return {
    contextSize,
    config: {
      vocab_size: config.vocab_size,
      hidden_size,
      intermediate_size: config.intermediate_size,
      num_hidden_layers,
      num_attention_heads,
      num_key_value_heads: config.num_key_value_heads ?? num_attention_heads,
      head_dim,
      rope_theta: theta,
      ...(scaling === null ? {} : { rope_scaling: scaling }),
      rms_norm_eps: config.rms_norm_eps ?? family.eps,
      tie_word_embeddings: config.tie_word_embeddings ?? false,
      ...family.traits(config),
    },
  };
}

/** A window and the layers in which it holds, or nothing. */
function window(
  columns: number | null | undefined,
  layerTypes: readonly string[] | null | undefined,
): Pick<Traits, 'sliding_window' | 'sliding_layers'> {
  if (columns === null || columns === undefined) return {};
  if (layerTypes === null || layerTypes === undefined) return { sliding_window: columns };
  const layers = layerTypes.flatMap((kind, layer) => (kind === 'sliding_attention' ? [layer] : []));
  return layers.length === 0 ? {} : { sliding_window: columns, sliding_layers: layers };
}

/** Qwen's windows hold where `use_sliding_window` says so: in the layers that `layer_types` marks, else from `max_window_layers` on. */
function qwenWindow(config: HubConfig, usually: number): Pick<Traits, 'sliding_window' | 'sliding_layers'> {
  if (config.use_sliding_window !== true) return {};
  const from = config.max_window_layers ?? usually;
  const marked = Array.from({ length: config.num_hidden_layers }, (_, layer) =>
    layer >= from ? 'sliding_attention' : 'full_attention',
  );
  return window(config.sliding_window ?? 4096, config.layer_types ?? marked);
}

const factor = z.number().positive();
const scalings = {
  linear: z.object({ factor }),
  dynamic: z.object({ factor }),
  llama3: z.object({
    factor,
    low_freq_factor: factor,
    high_freq_factor: factor,
    original_max_position_embeddings: size,
  }),
  yarn: z.object({
    factor: factor.nullish(),
    beta_fast: z.number().positive().nullish(),
    beta_slow: z.number().positive().nullish(),
    truncate: z.boolean().nullish(),
    attention_factor: z.number().positive().nullish(),
    mscale: z.number().nullish(),
    mscale_all_dim: z.number().nullish(),
    original_max_position_embeddings: size.nullish(),
  }),
};

/** Rotations that change nothing for text: without scaling, and Qwen-VL's three rows of positions, which are equal there. */
const unscaled: ReadonlySet<string> = new Set(['default', 'mrope']);

function readScaling(rope: Readonly<Record<string, unknown>>, contextSize: number, where: string): RopeScaling | null {
  const type = rope['rope_type'] ?? rope['type'] ?? 'default';
  if (typeof type === 'string' && unscaled.has(type)) return null;
  if (typeof type !== 'string' || !Object.hasOwn(scalings, type)) {
    const allowed = [...unscaled, ...Object.keys(scalings)].join(', ');
    throw new CheckpointError(`rope_type ${JSON.stringify(type)} is not covered; covered: ${allowed}`, { where });
  }
  const name = type as keyof typeof scalings;
  const parse = <T>(schema: z.ZodType<T>): T => {
    const parsed = schema.safeParse(rope);
    if (parsed.success) return parsed.data;
    const [issue] = parsed.error.issues;
    throw new CheckpointError(`rope_scaling.${issue.path.join('.')}: ${issue.message}`, { where });
  };
  switch (name) {
    case 'linear':
      return { rope_type: name, ...parse(scalings.linear) };
    case 'dynamic':
      parse(scalings.dynamic);
      return { rope_type: name, max_position_embeddings: contextSize };
    case 'llama3':
      return { rope_type: name, ...parse(scalings.llama3) };
    case 'yarn': {
      const { beta_fast, beta_slow, truncate, attention_factor, mscale, mscale_all_dim, ...context } = parse(
        scalings.yarn,
      );
      const before = context.original_max_position_embeddings ?? contextSize;
      const grown = context.factor ?? contextSize / before;
      const magnitude =
        isNumber(mscale) && isNumber(mscale_all_dim)
          ? yarnMagnitude(grown, mscale) / yarnMagnitude(grown, mscale_all_dim)
          : yarnMagnitude(grown);
      return {
        rope_type: name,
        factor: grown,
        beta_fast: beta_fast ?? 32,
        beta_slow: beta_slow ?? 1,
        truncate: truncate ?? true,
        attention_factor: attention_factor ?? magnitude,
        original_max_position_embeddings: before,
      };
    }
  }
}

/** Files say 0 or null for none. */
function isNumber(value: number | null | undefined): value is number {
  return typeof value === 'number' && value !== 0;
}

/** Positions are rotations, which have no end; loaders want one. */
const MADE_FOR_POSITIONS = 32_768;

/** The config.json of a model that sees, from which `readArchitecture` reads the same. */
export function seeingJson({ vision, mrope_section, ...config }: SeeingConfig): object {
  const { image_token_id, video_token_id, vision_start_token_id, vision_end_token_id, family } = vision;
  const { vocab_size, hidden_size, intermediate_size, num_hidden_layers } = config;
  const { num_attention_heads, num_key_value_heads, rms_norm_eps, rope_theta, tie_word_embeddings } = config;
  return {
    architectures: [
      { qwen2_vl: 'Qwen2VLForConditionalGeneration', qwen2_5_vl: 'Qwen2_5_VLForConditionalGeneration' }[family],
    ],
    model_type: family,
    ...{ image_token_id, video_token_id, vision_start_token_id, vision_end_token_id, tie_word_embeddings },
    text_config: {
      model_type: `${family}_text`,
      ...{ vocab_size, hidden_size, intermediate_size, num_hidden_layers, num_attention_heads, num_key_value_heads },
      ...{ rms_norm_eps, hidden_act: 'silu', max_position_embeddings: MADE_FOR_POSITIONS, use_sliding_window: false },
      bos_token_id: null,
      eos_token_id: null,
      rope_parameters: { rope_type: 'default', rope_theta, mrope_section },
    },
    vision_config: visionJson(vision),
  };
}
