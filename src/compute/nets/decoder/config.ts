/** The config of a decoder, with the names of Hugging Face's Llama and Qwen2 configs, and its parameters by name. */
import { GraphError, must } from '../../../core/errors.js';
import { RandomStream } from '../../../core/random.js';
import type { FloatTensor } from '../../../core/safetensors.js';
import type { Shape } from '../../graph/ir.js';
import { sizeOf } from '../../graph/ir.js';
import { adapterOf, adapterParameters, type Adapter, type LoraSettings, type ModuleNames } from '../lora.js';
import type { NormScale } from '../layers.js';
import type { RotarySettings } from './rope.js';
import { partOf, visionParameters, type TrainedParts, type VisionConfig } from '../vision/config.js';

export type Activation = 'silu' | 'gelu_tanh';
export type BlockNorms = 'before' | 'before_and_after' | 'after';
/** What a norm of queries and keys normalizes: each head, or the whole output of the projection. */
export type QkNorm = 'head' | 'projection';

/**
 * The differences of a family from Llama. Code that reads or writes configs of families has a table over these names,
 * so that a new trait does not compile until each table has it.
 */
export type Trait =
  | 'attention_bias'
  | 'attention_output_bias'
  | 'mlp_bias'
  | 'qk_norm'
  | 'fused_projections'
  | 'partial_rotary_factor'
  | 'sliding_window'
  | 'sliding_layers'
  | 'sliding_rope_theta'
  | 'activation'
  | 'query_pre_attn_scalar'
  | 'embedding_scale'
  | 'norm_scale'
  | 'block_norms';

/** The names of a block's norms: before and after attention, and before and after feed-forward. Null: no norm. */
export const blockNorms: Readonly<
  Record<
    BlockNorms,
    Readonly<Record<'attention' | 'feedForward', readonly [before: string | null, after: string | null]>>
  >
> = {
  before: { attention: ['input_layernorm', null], feedForward: ['post_attention_layernorm', null] },
  before_and_after: {
    attention: ['input_layernorm', 'post_attention_layernorm'],
    feedForward: ['pre_feedforward_layernorm', 'post_feedforward_layernorm'],
  },
  after: { attention: [null, 'post_attention_layernorm'], feedForward: [null, 'post_feedforward_layernorm'] },
};

export interface DecoderConfig extends RotarySettings {
  readonly vocab_size: number;
  readonly hidden_size: number;
  readonly intermediate_size: number;
  readonly num_hidden_layers: number;
  readonly num_attention_heads: number;
  readonly num_key_value_heads: number;
  readonly rms_norm_eps: number;
  /** Whether the q, k and v projections have a bias (Qwen2). */
  readonly attention_bias: boolean;
  /** Whether the attention's output projection has one, too (Llama's attention_bias). Absent: no. */
  readonly attention_output_bias?: boolean;
  /** Whether the feed-forward projections have one. Absent: no. */
  readonly mlp_bias?: boolean;
  /** What is normalized before queries and keys are rotated: each head (Qwen3), or all heads together (OLMo 2). Absent: nothing. */
  readonly qk_norm?: QkNorm;
  /** Whether q, k and v are one layer, `qkv_proj`, and gate and up are one, `gate_up_proj` (Phi-3). Absent: no. */
  readonly fused_projections?: boolean;
  /** The share of a head's width that is rotated, its first part (Phi-4-mini). Absent: 1. */
  readonly partial_rotary_factor?: number;
  /** How many columns a query sees in `sliding_layers`, its own included. Absent: all before it. */
  readonly sliding_window?: number;
  /** The layers with the window. Absent: all. */
  readonly sliding_layers?: readonly number[];
  /** The base of the rotary angles in `sliding_layers`, which are not scaled (Gemma 3). Absent: as in the other layers. */
  readonly sliding_rope_theta?: number;
  /** The activation that gates the feed-forward projection. Absent: `silu`. */
  readonly activation?: Activation;
  /** Scores are divided by the square root of this number (Gemma 3). Absent: of `head_dim`. */
  readonly query_pre_attn_scalar?: number;
  /** The factor of embeddings (Gemma 3). Absent: 1. */
  readonly embedding_scale?: number;
  /** The factor of RMSNorm: its weight, or 1 + its weight (Gemma 3). Absent: `weight`. */
  readonly norm_scale?: NormScale;
  /** The places of a block's norms: before attention and feed-forward, after each (OLMo 2), or both (Gemma 3). Absent: `before`. */
  readonly block_norms?: BlockNorms;
  readonly tie_word_embeddings: boolean;
  /** The adapter that is trained on top of frozen weights. Absent: all weights are trained. */
  readonly adapter?: Adapter;
  /** The vision encoder. Absent: the model reads only words. */
  readonly vision?: VisionConfig;
  /** For a vision model: how many rotary frequencies of a head follow time, rows and columns. */
  readonly mrope_section?: readonly number[];
  /** Whether these frequencies are interleaved (Qwen3-VL). Absent: no. */
  readonly mrope_interleaved?: boolean;
}

/** A decoder with a vision encoder. */
export type VisionDecoderConfig = DecoderConfig & {
  readonly vision: VisionConfig;
  readonly mrope_section: readonly number[];
};

export function hasVision(config: DecoderConfig): config is VisionDecoderConfig {
  return config.vision !== undefined;
}

/** Raises GraphError if the sizes do not fit together. */
export function checkDecoderConfig(config: DecoderConfig): void {
  if (config.num_attention_heads % config.num_key_value_heads !== 0) {
    throw new GraphError(
      `num_attention_heads ${config.num_attention_heads} is not a multiple of num_key_value_heads ${config.num_key_value_heads}`,
    );
  }
  const { usual } = rotations(config);
  if (usual.head_dim % 2 !== 0) {
    const share = usual === config ? 'head_dim' : 'head_dim * partial_rotary_factor';
    throw new GraphError(`${share} ${usual.head_dim} must be even for rotary positions`);
  }
  checkFactors(usual);
  const turned = config.mrope_section?.reduce((sum, count) => sum + count, 0);
  if (turned !== undefined && turned !== config.head_dim / 2) {
    throw new GraphError(
      `mrope_section [${config.mrope_section?.join(', ')}] does not sum to head_dim / 2, ${config.head_dim / 2}`,
    );
  }
  checkDeepStack(config);
}

/** Raises GraphError for factors of frequencies that are not one for each frequency. */
function checkFactors({ head_dim, rope_scaling }: RotarySettings): void {
  if (rope_scaling?.rope_type !== 'longrope' || rope_scaling.short_factor.length === head_dim / 2) return;
  throw new GraphError(
    `rope_parameters.short_factor has ${rope_scaling.short_factor.length} numbers; allowed: ${head_dim / 2}, half of the rotated width`,
  );
}

/** Raises GraphError if the last block, whose output only answers read, would have to add images. */
function checkDeepStack({ vision, num_hidden_layers: blocks }: DecoderConfig): void {
  const levels = vision?.deepstack_visual_indexes.length ?? 0;
  if (levels < blocks) return;
  throw new GraphError(
    `deepstack_visual_indexes names ${levels} blocks; allowed: fewer than num_hidden_layers, ${blocks}`,
  );
}

/** Whether a layer uses the window, however many columns there are. */
export function hasSlidingWindow(
  { sliding_window: window, sliding_layers: layers }: DecoderConfig,
  layer: number,
): boolean {
  return layers === undefined ? window !== undefined : layers.includes(layer);
}

/**
 * The rotation of the queries and keys of all layers, and the rotation of layers with a sliding window, which may be
 * the same.
 */
export function rotations(config: DecoderConfig): { readonly usual: RotarySettings; readonly sliding: RotarySettings } {
  const { sliding_rope_theta: theta, partial_rotary_factor: share } = config;
  const head_dim = share === undefined ? config.head_dim : Math.trunc(config.head_dim * share);
  const usual = share === undefined ? config : { ...config, head_dim };
  return { usual, sliding: theta === undefined ? usual : { head_dim, rope_theta: theta } };
}

/** The number of columns that a layer's queries attend to, out of `columns`. Null for all. */
export function windowOf(config: DecoderConfig, layer: number, columns: number): number | null {
  const { sliding_window: window } = config;
  return window === undefined || window >= columns || !hasSlidingWindow(config, layer) ? null : window;
}

type Kind = 'embedding' | 'kernel' | 'weight' | 'residual' | 'norm' | 'bias';

/** Every parameter's name, shape and kind, in checkpoint order. */
export function decoderParameters(config: DecoderConfig): Map<string, { readonly shape: Shape; readonly kind: Kind }> {
  const { hidden_size: width, intermediate_size: inner, vocab_size: vocabulary } = config;
  const queries = config.num_attention_heads * config.head_dim;
  const keys = config.num_key_value_heads * config.head_dim;
  const out = new Map<string, { shape: Shape; kind: Kind }>();
  out.set('model.embed_tokens.weight', { shape: [vocabulary, width], kind: 'embedding' });
  for (let i = 0; i < config.num_hidden_layers; i++) {
    const layer = `model.layers.${i}`;
    const norms = blockNorms[config.block_norms ?? 'before'];
    const norm = (name: string | null): unknown =>
      name === null ? null : out.set(`${layer}.${name}.weight`, { shape: [width], kind: 'norm' });
    norm(norms.attention[0]);
    const projections =
      config.fused_projections === true
        ? ([['qkv_proj', queries + 2 * keys]] as const)
        : ([
            ['q_proj', queries],
            ['k_proj', keys],
            ['v_proj', keys],
          ] as const);
    for (const [name, size] of projections) {
      out.set(`${layer}.self_attn.${name}.weight`, { shape: [size, width], kind: 'weight' });
      if (config.attention_bias) out.set(`${layer}.self_attn.${name}.bias`, { shape: [size], kind: 'bias' });
    }
    out.set(`${layer}.self_attn.o_proj.weight`, { shape: [width, queries], kind: 'residual' });
    if (config.attention_output_bias === true) {
      out.set(`${layer}.self_attn.o_proj.bias`, { shape: [width], kind: 'bias' });
    }
    if (config.qk_norm !== undefined) {
      for (const [name, size] of [
        ['q_norm', queries],
        ['k_norm', keys],
      ] as const) {
        const shape = [config.qk_norm === 'head' ? config.head_dim : size];
        out.set(`${layer}.self_attn.${name}.weight`, { shape, kind: 'norm' });
      }
    }
    [norms.attention[1], ...norms.feedForward].forEach(norm);
    const gates =
      config.fused_projections === true
        ? ([['gate_up_proj', [2 * inner, width], 'weight']] as const)
        : ([
            ['gate_proj', [inner, width], 'weight'],
            ['up_proj', [inner, width], 'weight'],
          ] as const);
    for (const [name, shape, kind] of [...gates, ['down_proj', [width, inner], 'residual'] as const]) {
      out.set(`${layer}.mlp.${name}.weight`, { shape, kind });
      if (config.mlp_bias === true) out.set(`${layer}.mlp.${name}.bias`, { shape: [shape[0]], kind: 'bias' });
    }
  }
  out.set('model.norm.weight', { shape: [width], kind: 'norm' });
  if (!config.tie_word_embeddings) out.set('lm_head.weight', { shape: [vocabulary, width], kind: 'weight' });
  if (config.vision !== undefined) visionParameters(config.vision).forEach((value, name) => out.set(name, value));
  return out;
}

/**
 * The decoder with an adapter on its trained `parts` (default: all), by names as in `adapterOf`. Raises ConfigError for
 * targets that match none of their layers.
 */
export function withAdapter(
  config: DecoderConfig,
  settings: LoraSettings,
  parts: TrainedParts | null = null,
  where?: string,
  namings?: readonly [ModuleNames, ...ModuleNames[]],
): DecoderConfig & { adapter: Adapter } {
  const linear = linearWeights(config).filter((name) => parts?.[partOf(name)] !== false);
  return { ...config, adapter: adapterOf(settings, linear, 'lm_head', where, namings) };
}

/** The names of the weights of all linear layers. */
export function linearWeights(config: DecoderConfig): string[] {
  return [...decoderParameters(config)].flatMap(([name, { kind }]) =>
    kind === 'weight' || kind === 'residual' ? [name] : [],
  );
}

/** Names and shapes of the parameters of the decoder's adapter. */
export function decoderAdapter(config: DecoderConfig & { readonly adapter: Adapter }): Map<string, Shape> {
  const base = decoderParameters(config);
  return new Map(adapterParameters(config.adapter, (name) => must(base.get(name), name).shape));
}

export interface InitScale {
  /** Standard deviation of the embeddings. */
  readonly embedding_std: number;
  /**
   * Standard deviation of the other matrices. null: 1/sqrt(fan-in), and for matrices that feed the residual stream also
   * / sqrt(2 layers).
   */
  readonly initializer_range: number | null;
}

/** Random weights. Each parameter has its own random stream, so that adding one changes no other. */
export function initDecoder(config: DecoderConfig, scale: InitScale, seed: number): Map<string, FloatTensor> {
  checkDecoderConfig(config);
  const out = new Map<string, FloatTensor>();
  for (const [name, { shape, kind }] of decoderParameters(config)) {
    const data = new Float32Array(sizeOf(shape));
    const fanIn = 1 / Math.sqrt(sizeOf(shape.slice(1)));
    const std: Record<Kind, number | null> = {
      embedding: scale.embedding_std,
      kernel: scale.initializer_range ?? fanIn,
      weight: scale.initializer_range ?? fanIn,
      residual: scale.initializer_range ?? fanIn / Math.sqrt(2 * config.num_hidden_layers),
      norm: null,
      bias: 0,
    };
    const deviation = std[kind];
    if (deviation === null) data.fill(config.norm_scale === 'one_plus_weight' ? 0 : 1);
    else if (deviation > 0) {
      const stream = new RandomStream(seed, 'init', name);
      for (let i = 0; i < data.length; i++) data[i] = deviation * stream.normal();
    }
    out.set(name, { shape, data });
  }
  return out;
}
