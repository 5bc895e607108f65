/**
 * Language models by their Hugging Face `config.json`: the supported families, and the values that each implies. The
 * defaults are those of transformers' configuration classes.
 */
import { z } from 'zod';
import { CheckpointError } from '../../../core/errors.js';
import type { Activation, DecoderConfig, VisionDecoderConfig, Trait } from './config.js';
import { readVision, visionJson, type VisionFamily } from '../vision/config.js';
import { readScaling, requireOneRotation, type RopeJson, supportedContext } from './rope.js';

/** A model as its folder describes it. */
export interface Architecture {
  readonly config: DecoderConfig;
  /** The largest supported number of tokens. Null if the config does not limit it. */
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
  original_max_position_embeddings: size.nullish(),
  partial_rotary_factor: z.number().nullish(),
  max_position_embeddings: size.nullish(),
  tie_word_embeddings: z.boolean().nullish(),
  hidden_act: z.string().nullish(),
  hidden_activation: z.string().nullish(),
  attention_bias: z.boolean().nullish(),
  mlp_bias: z.boolean().nullish(),
  sliding_window: size.nullish(),
  use_sliding_window: z.boolean().nullish(),
  max_window_layers: z.int().nonnegative().nullish(),
  layer_types: z.array(z.string()).nullish(),
  sliding_window_pattern: size.nullish(),
  rope_local_base_freq: z.number().positive().nullish(),
  query_pre_attn_scalar: z.number().positive().nullish(),
  attn_logit_softcapping: z.number().nullish(),
  final_logit_softcapping: z.number().nullish(),
  use_bidirectional_attention: z.boolean().nullish(),
  eos_token_id: z.union([z.int(), z.array(z.int())]).nullish(),
});
type HubConfig = z.output<typeof base>;

/**
 * The value of each trait of a family, except for the activation, which the file names. Undefined for a trait that the
 * family does not have.
 */
type Traits = { readonly [name in Exclude<Trait, 'activation'>]: DecoderConfig[name] | undefined };

/** The facts about a family other than its sizes. None has a default: every family gives each of them. */
interface Family {
  readonly traits: (config: HubConfig) => Traits;
  readonly eps: number;
  readonly theta: number;
  readonly context: number;
  /** The rotation of a file that states none. */
  readonly rope: RopeJson;
  /** Whether the output head shares the embeddings if the file does not state it. */
  readonly tied: boolean;
  /** The default of `head_dim`. Null: hidden_size / num_attention_heads. */
  readonly headDim: number | null;
  /** Whether `head_dim` is read. Otherwise it is hidden_size / num_attention_heads. */
  readonly readsHeadDim: boolean;
  /** Whether it has windows in any case. */
  readonly needsWindow: boolean;
  /** The key of a vision model's text settings. Null: the top level. */
  readonly nested: string | null;
  /** Sizes that files of the family may leave out. */
  readonly sizes: Partial<HubConfig>;
  /**
   * The default split of a head over the axes of images, and whether it is interleaved. Null: the family has no
   * supported vision encoder.
   */
  readonly axes: { readonly sections: readonly number[]; readonly interleaved: boolean } | null;
  /** The key that names the activation, the supported activations by their names in files, and the default name. */
  readonly activation: {
    readonly key: 'hidden_act' | 'hidden_activation';
    readonly covered: Readonly<Record<string, Activation>>;
    readonly absent: string;
  };
}

const plain: Traits = {
  attention_bias: false,
  attention_output_bias: undefined,
  mlp_bias: undefined,
  qk_norm: undefined,
  fused_projections: undefined,
  partial_rotary_factor: undefined,
  sliding_window: undefined,
  sliding_layers: undefined,
  sliding_rope_theta: undefined,
  query_pre_attn_scalar: undefined,
  embedding_scale: undefined,
  norm_scale: undefined,
  block_norms: undefined,
};

const silu: Family['activation'] = { key: 'hidden_act', covered: { silu: 'silu' }, absent: 'silu' };

const llama: Family = {
  traits: ({ attention_bias, mlp_bias }) => ({
    ...plain,
    attention_bias: attention_bias ?? false,
    attention_output_bias: attention_bias ?? false,
    mlp_bias: mlp_bias ?? false,
  }),
  eps: 1e-6,
  theta: 10_000,
  context: 2048,
  rope: {},
  tied: false,
  headDim: null,
  readsHeadDim: true,
  needsWindow: false,
  nested: null,
  sizes: {},
  axes: null,
  activation: silu,
};

const qwen2: Family = {
  ...llama,
  traits: (config) => ({ ...plain, attention_bias: true, ...qwenWindow(config, 28) }),
  context: 32_768,
};

const qwenVision: Family = {
  ...qwen2,
  traits: (config) => ({ ...plain, attention_bias: true, ...qwenWindow(config, 80) }),
  eps: 1e-5,
  theta: 1_000_000,
  readsHeadDim: false,
  nested: 'text_config',
  axes: { sections: [16, 24, 24], interleaved: false },
};

const qwen3: Family = {
  ...qwen2,
  traits: (config) => ({
    ...plain,
    attention_bias: config.attention_bias ?? false,
    attention_output_bias: config.attention_bias ?? false,
    qk_norm: 'head',
    ...qwenWindow(config, 28),
  }),
  headDim: 128,
};

const qwen3Vision: Family = {
  ...qwen3,
  // Its decoder has no windows.
  traits: (config) => qwen3.traits({ ...config, use_sliding_window: false }),
  theta: 500_000,
  context: 128_000,
  nested: 'text_config',
  axes: { sections: [24, 20, 20], interleaved: true },
};

/** The Llama of SmolVLM. All of a head follows one axis, because image tokens have the positions of words. */
const smolvlm: Family = { ...llama, eps: 1e-5, nested: 'text_config', axes: { sections: [], interleaved: false } };

const emu3Text: Family = { ...llama, traits: () => plain, eps: 1e-5, theta: 1_000_000, context: 9216 };

/** The text model of Gemma 3 (transformers' `Gemma3ForCausalLM`). */
const gemma3Text: Family = {
  ...llama,
  needsWindow: true,
  traits: (config) => ({
    ...plain,
    attention_bias: config.attention_bias ?? false,
    attention_output_bias: config.attention_bias ?? false,
    qk_norm: 'head',
    sliding_window: config.sliding_window === undefined ? 4096 : (config.sliding_window ?? undefined),
    sliding_layers: layersWith('sliding_attention', config.layer_types ?? everyOther(config, 6)),
    sliding_rope_theta: localTheta(config, config.rope_local_base_freq ?? 10_000),
    query_pre_attn_scalar: config.query_pre_attn_scalar ?? 256,
    embedding_scale: Math.sqrt(config.hidden_size),
    norm_scale: 'one_plus_weight',
    block_norms: 'before_and_after',
  }),
  theta: 1_000_000,
  context: 131_072,
  tied: true,
  headDim: 256,
  sizes: {
    vocab_size: 262_208,
    hidden_size: 2304,
    intermediate_size: 9216,
    num_hidden_layers: 26,
    num_attention_heads: 8,
    num_key_value_heads: 4,
  },
  activation: {
    key: 'hidden_activation',
    covered: { gelu_pytorch_tanh: 'gelu_tanh' },
    absent: 'gelu_pytorch_tanh',
  },
};

const mistral: Family = {
  ...llama,
  traits: (config) => ({
    ...plain,
    // A file without the key means 4096 columns, one with null means all.
    ...window(config.sliding_window === undefined ? 4096 : config.sliding_window, config.layer_types),
  }),
  context: 131_072,
};

const ministral3: Family = {
  ...llama,
  // transformers gives all layers the window, whatever layer_types says.
  traits: (config) => ({ ...plain, ...window(config.sliding_window, null) }),
  eps: 1e-5,
  theta: 1_000_000,
  context: 262_144,
  rope: {
    rope_type: 'yarn',
    factor: 16,
    original_max_position_embeddings: 16_384,
    mscale: 1,
    mscale_all_dim: 1,
    llama_4_scaling_beta: 0.1,
  },
  headDim: 128,
};

const olmo2: Family = {
  ...llama,
  traits: ({ attention_bias }) => ({
    ...plain,
    attention_bias: attention_bias ?? false,
    attention_output_bias: attention_bias ?? false,
    qk_norm: 'projection',
    block_norms: 'after',
  }),
  eps: 1e-5,
};

const olmo3: Family = {
  ...olmo2,
  needsWindow: true,
  traits: (config) => ({
    ...olmo2.traits(config),
    sliding_window: config.sliding_window === undefined ? 4096 : (config.sliding_window ?? undefined),
    sliding_layers: layersWith('sliding_attention', config.layer_types ?? everyOther(config, 4)),
    sliding_rope_theta: localTheta(config, 500_000),
  }),
  theta: 500_000,
};

/** Phi-3 and the text models of Phi-4. */
const phi3: Family = {
  ...llama,
  traits: (config) => {
    const share = rotatedShare(config);
    return {
      ...plain,
      fused_projections: true,
      partial_rotary_factor: share === 1 ? undefined : share,
      ...window(config.sliding_window, null),
    };
  },
  eps: 1e-5,
  context: 4096,
};

/** By `model_type`. */
const families = {
  llama,
  mistral,
  ministral: mistral,
  ministral3,
  olmo2,
  olmo3,
  phi3,
  qwen2,
  qwen3,
  qwen2_vl: qwenVision,
  qwen2_vl_text: qwenVision,
  qwen2_5_vl: qwenVision,
  qwen2_5_vl_text: qwenVision,
  qwen3_vl: qwen3Vision,
  qwen3_vl_text: qwen3Vision,
  smolvlm,
  emu3: { ...emu3Text, nested: 'text_config' },
  emu3_text_model: emu3Text,
  gemma3_text: gemma3Text,
  gemma3: { ...gemma3Text, nested: 'text_config' },
  mistral3: { ...mistral, nested: 'text_config' },
} satisfies Readonly<Record<string, Family>>;
type ModelType = keyof typeof families;

const deltaRule = 'its layers of linear attention, the recurrence of the gated delta rule (linear_attn.*)';
const altUp = 'its AltUp streams, Laurel blocks, embeddings of each layer and shared keys and values';

/** The missing part of families that people ask for, by `model_type`. */
const missingParts: Readonly<Record<string, string>> = {
  qwen3_5: deltaRule,
  qwen3_5_text: deltaRule,
  qwen3_next: `${deltaRule} and its experts`,
  qwen3_5_moe: `${deltaRule} and its experts`,
  gemma3n: altUp,
  gemma3n_text: altUp,
  gemma2: 'the caps of its scores and logits',
  phi4_multimodal: 'its encoders and the adapters of each modality',
};

/** Names that files of remote code carry instead. */
const aliases: Readonly<Record<string, string>> = { Emu3: 'emu3' };

/** The `model_type`s that can be read. */
export const modelTypes: readonly string[] = Object.keys(families);

/**
 * Whether transformers' class of a config.json is a text model inside a model that reads images. Its layers then have
 * longer names.
 */
export function isInsideVisionModel({ model_type, vision_config }: Readonly<Record<string, unknown>>): boolean {
  const type = String(model_type);
  const family: Family | null = Object.hasOwn(families, type) ? families[type as ModelType] : null;
  return vision_config !== undefined && family !== null && family.nested !== null;
}

/** The activations that are computed, as files name them. */
export const activations: readonly string[] = [
  ...new Set(Object.values<Family>(families).flatMap(({ activation }) => Object.keys(activation.covered))),
];

/** The parts of a model to read. */
export type ReadPart = 'words' | 'words and images';

/**
 * Reads a `config.json`, including a vision model's encoder if `part` requests it. Raises CheckpointError, with `where`,
 * for unsupported models or settings. The message lists the supported ones.
 */
export function readArchitecture(json: unknown, where: string, part: ReadPart = 'words'): Architecture {
  const outer = z.looseObject({ model_type: z.string() }).safeParse(json);
  const type = outer.success ? (aliases[outer.data.model_type] ?? outer.data.model_type) : null;
  const family: Family | null = type !== null && Object.hasOwn(families, type) ? families[type as ModelType] : null;
  if (family === null || !outer.success) {
    const missing = type !== null && Object.hasOwn(missingParts, type) ? missingParts[type] : null;
    const reason = missing === null ? '' : `, because this part is not computed here: ${missing}`;
    const found = type === null ? 'it names no model_type' : `model_type '${type}' is not supported${reason}`;
    throw new CheckpointError(`${found}; allowed: ${modelTypes.join(', ')}`, {
      where,
      next: 'Name a model of one of these families, converted to the Hugging Face layout.',
    });
  }
  const quantized = outer.data['quantization_config'] ?? null;
  if (quantized !== null) {
    const { quant_method: method = null } = Object(quantized) as { readonly quant_method?: unknown };
    throw new CheckpointError(
      `quantized weights (quantization_config, quant_method ${JSON.stringify(method)}) are not supported; allowed: F32, F16, BF16`,
      {
        where,
        next: 'Name the model that it was quantized from.',
      },
    );
  }
  const nested = family.nested === null ? undefined : outer.data[family.nested];
  // Newer files repeat settings of the whole model outside.
  const inner = typeof nested === 'object' && nested !== null ? (nested as Readonly<Record<string, unknown>>) : {};
  // Whether the head is tied is a setting of the whole model, not of its text model.
  const tied = outer.data['tie_word_embeddings'] ?? inner['tie_word_embeddings'];
  const rotation = inner['rope_parameters'] ?? inner['rope_scaling'] ?? null;
  const { rope_parameters, rope_scaling } = rotation === null ? outer.data : inner;
  // A vision model may contain a text model of any family.
  const insideType = inner['model_type'] ?? type;
  if (typeof insideType !== 'string' || !Object.hasOwn(families, insideType)) {
    const allowed = modelTypes.join(', ');
    throw new CheckpointError(
      `${family.nested}.model_type ${JSON.stringify(insideType)} is not supported; allowed: ${allowed}`,
      { where },
    );
  }
  const inside: Family = { ...families[insideType as ModelType], axes: family.axes };
  const merged = { ...inside.sizes, ...outer.data, ...inner, tie_word_embeddings: tied, rope_parameters, rope_scaling };
  const parsed = base.safeParse(merged);
  if (!parsed.success) {
    const [issue] = parsed.error.issues;
    throw new CheckpointError(`${issue.path.join('.')}: ${issue.message}`, { where });
  }
  const read = toArchitecture(parsed.data, inside, where);
  if (part === 'words') return read;
  const vision = readVision(outer.data, read.config.hidden_size, where);
  const rope = parsed.data.rope_parameters ?? parsed.data.rope_scaling ?? {};
  const { sections = [], interleaved = false } = family.axes ?? {};
  const own = z.array(size).safeParse(rope['mrope_section']).data ?? sections;
  const mrope_section = own.length > 0 ? own : [read.config.head_dim / 2, 0, 0];
  const isInterleaved = rope['mrope_interleaved'] ?? interleaved;
  if (isInterleaved !== interleaved) {
    throw new CheckpointError(
      `mrope_interleaved ${JSON.stringify(isInterleaved)} is not supported for this model_type; allowed: ${interleaved}`,
      { where },
    );
  }
  const axes = { mrope_section, ...(interleaved ? { mrope_interleaved: true } : {}) };
  return { ...read, config: { ...read.config, vision, ...axes } };
}

function toArchitecture(config: HubConfig, family: Family, where: string): Architecture {
  const { hidden_size, num_attention_heads, num_hidden_layers } = config;
  const { key, covered, absent } = family.activation;
  const activation = config[key] ?? absent;
  if (!Object.hasOwn(covered, activation)) {
    const allowed = Object.keys(covered).join(', ');
    throw new CheckpointError(`${key} '${activation}' is not supported; allowed: ${allowed}`, { where });
  }
  const gate = covered[activation];
  for (const name of ['attn_logit_softcapping', 'final_logit_softcapping', 'use_bidirectional_attention'] as const) {
    const found = config[name] ?? false;
    if (found === false) continue;
    throw new CheckpointError(`${name} ${JSON.stringify(found)} is not supported; allowed: none`, { where });
  }
  const even = hidden_size / num_attention_heads;
  const head_dim = config.head_dim ?? (family.readsHeadDim ? (family.headDim ?? even) : even);
  if (!family.readsHeadDim && head_dim !== even) {
    throw new CheckpointError(
      `head_dim ${head_dim} is not supported; allowed: hidden_size / num_attention_heads, ${even}`,
      { where },
    );
  }
  if (!Number.isInteger(head_dim)) {
    throw new CheckpointError(
      `hidden_size ${hidden_size} is not a multiple of num_attention_heads ${num_attention_heads}`,
      { where },
    );
  }
  requireLayers(config, family, where);
  const ends = config.eos_token_id ?? [];
  const outside = (typeof ends === 'number' ? [ends] : ends).find((id) => id < 0 || id >= config.vocab_size);
  if (outside !== undefined) {
    throw new CheckpointError(`eos_token_id ${outside} is not in the vocabulary of ${config.vocab_size} tokens`, {
      where,
    });
  }
  const partial = rotatedShare(config);
  const traits = family.traits(config);
  if (partial !== 1 && traits.partial_rotary_factor === undefined) {
    throw new CheckpointError(`partial_rotary_factor ${JSON.stringify(partial)} is not supported; allowed: 1`, {
      where,
    });
  }
  const fallback = config.rope_theta ?? family.theta;
  if (!isNone(config.rope_scaling) && !isNone(config.rope_parameters)) {
    requireOneRotation(config.rope_scaling, config.rope_parameters, fallback, where);
  }
  // Newer files hold all rotation settings in one place.
  const stated = ropeOf(config, 'full_attention') ?? config.rope_scaling ?? family.rope;
  // As in transformers, the size beside the rotation takes precedence.
  const { original_max_position_embeddings: original } = config;
  const rope = isNone(original) ? stated : { ...stated, original_max_position_embeddings: original };
  const theta = typeof rope['rope_theta'] === 'number' ? rope['rope_theta'] : fallback;
  const contextSize = config.max_position_embeddings ?? family.context;
  const local = ropeOf(config, 'sliding_attention') ?? {};
  if (local !== config.rope_parameters && readScaling(local, contextSize, where) !== null) {
    const found = JSON.stringify(local['rope_type']);
    throw new CheckpointError(`rope_type ${found} of sliding_attention is not supported; allowed: default`, { where });
  }
  const scaling = readScaling(rope, contextSize, where, family.axes !== null);
  return {
    contextSize: supportedContext(rope, scaling, contextSize),
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
      tie_word_embeddings: config.tie_word_embeddings ?? family.tied,
      ...known({ ...traits, activation: gate === 'silu' ? undefined : gate }),
    },
  };
}

function isNone(value: unknown): value is null | undefined {
  return value === null || value === undefined;
}

/** The kinds of layers that `layer_types` may name. */
const LAYER_TYPES = ['full_attention', 'sliding_attention'];

/**
 * Raises CheckpointError for layers that transformers cannot compute either: of unknown kinds, or without the size of
 * their window.
 */
function requireLayers(config: HubConfig, family: Family, where: string): void {
  const { layer_types: types, num_hidden_layers: count, sliding_window } = config;
  if (family.needsWindow && sliding_window === null) {
    throw new CheckpointError('sliding_window null is not supported; allowed: a number of columns', { where });
  }
  if (isNone(types)) return;
  const unknown = types.find((type) => !LAYER_TYPES.includes(type));
  if (unknown !== undefined) {
    throw new CheckpointError(`layer_types: '${unknown}' is not supported; allowed: ${LAYER_TYPES.join(', ')}`, {
      where,
    });
  }
  if (types.length !== count) {
    throw new CheckpointError(`layer_types names ${types.length} layers, and num_hidden_layers is ${count}`, { where });
  }
  const isWindowed = family.traits(config).sliding_window !== undefined;
  if (isWindowed || !types.includes('sliding_attention')) return;
  throw new CheckpointError("layer_types has 'sliding_attention', and the model has no window", {
    where,
    next: 'Set sliding_window, and use_sliding_window if the family has it, or name only full_attention.',
  });
}

/** The traits that a family has. */
function known(traits: { readonly [name in Trait]: DecoderConfig[name] | undefined }): Pick<DecoderConfig, Trait> {
  return Object.fromEntries(Object.entries(traits).filter(([, value]) => value !== undefined)) as Pick<
    DecoderConfig,
    Trait
  >;
}

/** The rotation of one kind of layers in newer files, which give it for each kind or once for all. Null without one. */
function ropeOf({ rope_parameters: all }: HubConfig, kind: string): Readonly<Record<string, unknown>> | null {
  const own = all?.[kind];
  return typeof own === 'object' && own !== null ? (own as Readonly<Record<string, unknown>>) : (all ?? null);
}

/** The share of a head that is rotated, from the places in which files have it. */
function rotatedShare(config: HubConfig): number {
  const rotations = [ropeOf(config, 'full_attention'), ropeOf(config, 'sliding_attention'), config.rope_scaling];
  const stated = [...rotations.map((rope) => rope?.['partial_rotary_factor']), config.partial_rotary_factor];
  return stated.find((share): share is number => typeof share === 'number') ?? 1;
}

function localTheta(config: HubConfig, usually: number): number {
  const theta = ropeOf(config, 'sliding_attention')?.['rope_theta'];
  return typeof theta === 'number' ? theta : usually;
}

/** Every `usually`-th layer, or every `sliding_window_pattern`-th, attends to all columns. */
function everyOther({ num_hidden_layers, sliding_window_pattern: pattern }: HubConfig, usually: number): string[] {
  return Array.from({ length: num_hidden_layers }, (_, layer) =>
    (layer + 1) % (pattern ?? usually) === 0 ? 'full_attention' : 'sliding_attention',
  );
}

function layersWith(kind: string, layerTypes: readonly string[]): number[] {
  return layerTypes.flatMap((each, layer) => (each === kind ? [layer] : []));
}

/** A window and its layers, or nothing. */
function window(
  columns: number | null | undefined,
  layerTypes: readonly string[] | null | undefined,
): Pick<DecoderConfig, 'sliding_window' | 'sliding_layers'> {
  if (columns === null || columns === undefined) return {};
  if (layerTypes === null || layerTypes === undefined) return { sliding_window: columns };
  const layers = layersWith('sliding_attention', layerTypes);
  return layers.length === 0 ? {} : { sliding_window: columns, sliding_layers: layers };
}

/**
 * Qwen enables windows with `use_sliding_window`: in the layers that `layer_types` marks, otherwise from
 * `max_window_layers` on.
 */
function qwenWindow(config: HubConfig, usually: number): Pick<DecoderConfig, 'sliding_window' | 'sliding_layers'> {
  if (config.use_sliding_window !== true) return {};
  const from = config.max_window_layers ?? usually;
  const marked = Array.from({ length: config.num_hidden_layers }, (_, layer) =>
    layer >= from ? 'sliding_attention' : 'full_attention',
  );
  return window(config.sliding_window ?? 4096, config.layer_types ?? marked);
}

/** Rotations have no largest position, but loaders need one. */
const MADE_FOR_POSITIONS = 32_768;

const classes: Readonly<Record<VisionFamily, string>> = {
  qwen2_vl: 'Qwen2VLForConditionalGeneration',
  qwen2_5_vl: 'Qwen2_5_VLForConditionalGeneration',
  qwen3_vl: 'Qwen3VLForConditionalGeneration',
  smolvlm: 'SmolVLMForConditionalGeneration',
};

/** The config.json of a model that sees, from which `readArchitecture` reads the same. */
export function visionDecoderJson({ vision, mrope_section, ...config }: VisionDecoderConfig): object {
  const { image_token_id, video_token_id, vision_start_token_id, vision_end_token_id, family } = vision;
  const { vocab_size, hidden_size, intermediate_size, num_hidden_layers, head_dim, mrope_interleaved } = config;
  const { num_attention_heads, num_key_value_heads, rms_norm_eps, rope_theta, tie_word_embeddings } = config;
  return {
    architectures: [classes[family]],
    model_type: family,
    ...{ image_token_id, video_token_id, vision_start_token_id, vision_end_token_id, tie_word_embeddings },
    text_config: {
      model_type: `${family}_text`,
      ...{ vocab_size, hidden_size, intermediate_size, num_hidden_layers, num_attention_heads, num_key_value_heads },
      ...(families[family].readsHeadDim ? { head_dim, attention_bias: config.attention_bias } : {}),
      ...{ rms_norm_eps, hidden_act: 'silu', max_position_embeddings: MADE_FOR_POSITIONS, use_sliding_window: false },
      bos_token_id: null,
      eos_token_id: null,
      rope_parameters: { rope_type: 'default', rope_theta, mrope_section, mrope_interleaved },
    },
    vision_config: visionJson(vision),
  };
}
