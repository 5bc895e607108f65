/** The parameters of flow transformers: diffusers' names for them, their shapes and their initial values. */
import { RandomStream } from '../../../core/random.js';
import type { FloatTensor } from '../../../core/safetensors.js';
import { type Shape, sizeOf } from '../../graph/ir.js';
import { type Adapter, adapterOf, type LoraSettings } from '../lora.js';
import {
  POSITION_TABLE,
  checkFlowConfig,
  type FlowArchitecture,
  type FlowTransformerConfig,
  embedsGuidance,
  feedForwardForm,
  hasBiases,
  innerWidth,
  jointForm,
  normsHeads,
  pooledWidth,
  singleLayers,
  velocityWidth,
} from './config.js';
import { positionTable } from './positions.js';

/** One attention of a stream. */
export interface AttentionNames {
  readonly query: string;
  readonly key: string;
  readonly value: string;
  readonly queryNorm: string;
  readonly keyNorm: string;
  /** After attention. */
  readonly out: string;
}

/** One stream of a joint block. */
export interface StreamNames extends AttentionNames {
  /** Makes shifts, scales and gates of the conditioning. A layer of the block, or of the model if blocks share it. */
  readonly modulation: string;
  /** The feed-forward layers. */
  readonly up: string;
  readonly down: string;
}

const ofImage = {
  query: 'attn.to_q',
  key: 'attn.to_k',
  value: 'attn.to_v',
  queryNorm: 'attn.norm_q',
  keyNorm: 'attn.norm_k',
  out: 'attn.to_out.0',
} as const;

const ofText = {
  query: 'attn.add_q_proj',
  key: 'attn.add_k_proj',
  value: 'attn.add_v_proj',
  queryNorm: 'attn.norm_added_q',
  keyNorm: 'attn.norm_added_k',
  out: 'attn.to_add_out',
} as const;

/** The image's attention to itself, in blocks that have it. */
export const ownAttention: AttentionNames = {
  query: 'attn2.to_q',
  key: 'attn2.to_k',
  value: 'attn2.to_v',
  queryNorm: 'attn2.norm_q',
  keyNorm: 'attn2.norm_k',
  out: 'attn2.to_out.0',
};

/** The layers of a single block, whose `out` also reads the output of its feed-forward layer. */
export interface SingleNames extends Pick<AttentionNames, 'queryNorm' | 'keyNorm' | 'out'> {
  /** The layer that makes the shift, scale and gate, as in a joint block. */
  readonly modulation: string;
  /** The layers that read the normalized tokens: one each, or one for all of them in this order. */
  readonly into: { readonly query: string; readonly key: string; readonly value: string; readonly up: string } | string;
}

export interface FlowNames {
  /** The layers over the noise level and the guidance. */
  readonly time: string;
  readonly guidance: string;
  /** Whether all blocks of a kind share the layers of their modulations. */
  readonly sharesModulations: boolean;
  readonly single: SingleNames;
  readonly imageIn: string;
  readonly textIn: string;
  /** The norm before it, if there is one. */
  readonly textNorm: string | null;
  readonly image: StreamNames;
  readonly text: StreamNames;
}

const common = {
  time: 'time_text_embed.timestep_embedder',
  guidance: 'time_text_embed.guidance_embedder',
  sharesModulations: false,
  textNorm: null,
  single: {
    modulation: 'norm.linear',
    into: { query: 'attn.to_q', key: 'attn.to_k', value: 'attn.to_v', up: 'proj_mlp' },
    queryNorm: 'attn.norm_q',
    keyNorm: 'attn.norm_k',
    out: 'proj_out',
  },
  image: { ...ofImage, modulation: 'norm1.linear', up: 'ff.net.0.proj', down: 'ff.net.2' },
  text: { ...ofText, modulation: 'norm1_context.linear', up: 'ff_context.net.0.proj', down: 'ff_context.net.2' },
} as const;

export const flowNames: Readonly<Record<FlowArchitecture, FlowNames>> = {
  flux: { ...common, imageIn: 'x_embedder', textIn: 'context_embedder' },
  sd3: { ...common, imageIn: 'pos_embed.proj', textIn: 'context_embedder' },
  flux2: {
    time: 'time_guidance_embed.timestep_embedder',
    guidance: 'time_guidance_embed.guidance_embedder',
    sharesModulations: true,
    textNorm: null,
    imageIn: 'x_embedder',
    textIn: 'context_embedder',
    single: {
      modulation: 'single_stream_modulation.linear',
      into: 'attn.to_qkv_mlp_proj',
      queryNorm: 'attn.norm_q',
      keyNorm: 'attn.norm_k',
      out: 'attn.to_out',
    },
    image: { ...ofImage, modulation: 'double_stream_modulation_img.linear', up: 'ff.linear_in', down: 'ff.linear_out' },
    text: {
      ...ofText,
      modulation: 'double_stream_modulation_txt.linear',
      up: 'ff_context.linear_in',
      down: 'ff_context.linear_out',
    },
  },
  qwen_image: {
    ...common,
    imageIn: 'img_in',
    textIn: 'txt_in',
    textNorm: 'txt_norm',
    image: { ...ofImage, modulation: 'img_mod.1', up: 'img_mlp.net.0.proj', down: 'img_mlp.net.2' },
    text: { ...ofText, modulation: 'txt_mod.1', up: 'txt_mlp.net.0.proj', down: 'txt_mlp.net.2' },
  },
};

export const POOLED = 'time_text_embed.text_embedder';
export const LAST_MODULATION = 'norm_out.linear';
export const LAST = 'proj_out';

export const jointBlock = (index: number): string => `transformer_blocks.${index}`;
export const singleBlock = (index: number): string => `single_transformer_blocks.${index}`;

/** The adapter's layers, with diffusers' names for the first loaded adapter. */
export const IP_PROJECTION = 'encoder_hid_proj.image_projection_layers.0.image_embeds';
export const IP_NORM = 'encoder_hid_proj.image_projection_layers.0.norm';
export const IP_KEY = 'attn.processor.to_k_ip.0';
export const IP_VALUE = 'attn.processor.to_v_ip.0';

/** Whether a parameter is the IP-Adapter's. */
export function isIpAdapter(name: string): boolean {
  return name.startsWith('encoder_hid_proj.') || /\.attn\.processor\.to_[kv]_ip\./.test(name);
}

/** Numbers that a noise level becomes before a layer reads it. */
export const SINUSOIDS = 256;

/** A parameter's initial values: normal with 1/sqrt(fan-in), zeros, ones, or a table of positions. */
type Begin = 'spread' | 'zero' | 'one' | 'places';

interface Parameter {
  readonly shape: Shape;
  readonly begin: Begin;
}

class ParameterList {
  readonly parameters = new Map<string, Parameter>();
  readonly linearLayers: string[] = [];

  constructor(private readonly hasBiases: boolean) {}

  linear(name: string, inputs: number, outputs: number, begin: Begin = 'spread'): void {
    this.parameters.set(`${name}.weight`, { shape: [outputs, inputs], begin });
    if (this.hasBiases) this.parameters.set(`${name}.bias`, { shape: [outputs], begin: 'zero' });
    this.linearLayers.push(`${name}.weight`);
  }

  /** One weight for each of the width's elements. */
  scale(name: string, width: number): void {
    this.parameters.set(`${name}.weight`, { shape: [width], begin: 'one' });
  }
}

function listOf(config: FlowTransformerConfig): ParameterList {
  const list = new ParameterList(hasBiases(config));
  const width = innerWidth(config);
  const { up, inner } = feedForwardForm(config);
  const { attention_head_dim: depth, joint_attention_dim: textWidth, ip_adapter } = config;
  const names = flowNames[config.architecture];
  const twoLayers = (name: string, inputs: number): void => {
    list.linear(`${name}.linear_1`, inputs, width);
    list.linear(`${name}.linear_2`, width, width);
  };
  twoLayers(names.time, SINUSOIDS);
  if (embedsGuidance(config)) twoLayers(names.guidance, SINUSOIDS);
  if (pooledWidth(config) > 0) twoLayers(POOLED, pooledWidth(config));
  if (names.textNorm !== null) list.scale(names.textNorm, textWidth);
  list.linear(names.textIn, textWidth, width);
  if (config.architecture === 'sd3') {
    const { pos_embed_max_size: places, patch_size: patch, in_channels } = config;
    list.parameters.set(POSITION_TABLE, { shape: [1, places ** 2, width], begin: 'places' });
    // A convolution, to which LoRA does not apply.
    const kernels = [width, in_channels / patch ** 2, patch, patch];
    list.parameters.set(`${names.imageIn}.weight`, { shape: kernels, begin: 'spread' });
    list.parameters.set(`${names.imageIn}.bias`, { shape: [width], begin: 'zero' });
  } else list.linear(names.imageIn, config.in_channels, width);
  if (names.sharesModulations) {
    for (const { modulation } of [names.image, names.text]) list.linear(modulation, width, 6 * width, 'zero');
    list.linear(names.single.modulation, width, 3 * width, 'zero');
  }
  for (let i = 0; i < config.num_layers; i++) {
    const { text, dual } = jointForm(config, i);
    const attention = (block: AttentionNames, parts: readonly ('query' | 'key' | 'value' | 'out')[]): void => {
      for (const part of parts) list.linear(`${jointBlock(i)}.${block[part]}`, width, width);
      if (!normsHeads(config)) return;
      for (const part of ['queryNorm', 'keyNorm'] as const) list.scale(`${jointBlock(i)}.${block[part]}`, depth);
    };
    for (const stream of [names.image, names.text]) {
      const at = (part: keyof typeof stream): string => `${jointBlock(i)}.${stream[part]}`;
      const isWhole = stream === names.image || text === 'whole';
      const vectors = isWhole ? (dual && stream === names.image ? 9 : 6) : 2;
      if (!names.sharesModulations) list.linear(at('modulation'), width, vectors * width, 'zero');
      attention(stream, isWhole ? ['query', 'key', 'value', 'out'] : ['query', 'key', 'value']);
      if (!isWhole) continue;
      list.linear(at('up'), width, up);
      list.linear(at('down'), inner, width);
    }
    if (dual) attention(ownAttention, ['query', 'key', 'value', 'out']);
    if (ip_adapter === null) continue;
    list.linear(`${jointBlock(i)}.${IP_KEY}`, textWidth, width);
    list.linear(`${jointBlock(i)}.${IP_VALUE}`, textWidth, width, 'zero');
  }
  for (let i = 0; i < singleLayers(config); i++) {
    const { modulation, into, queryNorm, keyNorm, out } = names.single;
    const at = (part: string): string => `${singleBlock(i)}.${part}`;
    if (!names.sharesModulations) list.linear(at(modulation), width, 3 * width, 'zero');
    if (typeof into === 'string') list.linear(at(into), width, 3 * width + up);
    else {
      for (const part of [into.query, into.key, into.value]) list.linear(at(part), width, width);
      list.linear(at(into.up), width, up);
    }
    for (const part of [queryNorm, keyNorm]) list.scale(at(part), depth);
    list.linear(at(out), width + inner, width);
  }
  list.linear(LAST_MODULATION, width, 2 * width, 'zero');
  list.linear(LAST, width, velocityWidth(config), 'zero');
  if (ip_adapter !== null) {
    list.linear(IP_PROJECTION, ip_adapter.image_embed_dim, ip_adapter.tokens * textWidth);
    list.scale(IP_NORM, textWidth);
    list.parameters.set(`${IP_NORM}.bias`, { shape: [textWidth], begin: 'zero' });
  }
  return list;
}

/**
 * Names and shapes of all parameters. Without single blocks, the last joint block's text stream ends at its keys and
 * values. The layers after those are stored, as diffusers does, and `velocity` reads none of them.
 */
export function flowParameters(config: FlowTransformerConfig): Map<string, Shape> {
  return new Map([...listOf(config).parameters].map(([name, { shape }]) => [name, shape]));
}

/** The weights [out, in] of all linear layers. */
export function flowLinearLayers(config: FlowTransformerConfig): string[] {
  return listOf(config).linearLayers;
}

/** LoRA over its linear layers. Raises ConfigError as `adapterOf`. */
export function flowAdapter(config: FlowTransformerConfig, lora: LoraSettings, where?: string): Adapter {
  return adapterOf(lora, flowLinearLayers(config), LAST, where);
}

/**
 * Random weights: matrices 1/sqrt(fan-in), biases 0. Modulations and the last layer are zero (Peebles and Xie, adaLN-Zero, 2023), so that every block
 * begins as the identity. The IP-Adapter's values are zero too, so that it begins without effect: keys and image tokens get gradients once the values
 * have moved. Each parameter has a stream of its own, so that adding one changes no other. `wanted` selects the parameters. Default: all.
 */
export function initFlowTransformer(
  config: FlowTransformerConfig,
  seed: number,
  wanted: (name: string) => boolean = () => true,
): Map<string, FloatTensor> {
  checkFlowConfig(config);
  const out = new Map<string, FloatTensor>();
  for (const [name, { shape, begin }] of listOf(config).parameters) {
    if (!wanted(name)) continue;
    const data = new Float32Array(sizeOf(shape));
    if (begin === 'one') data.fill(1);
    if (begin === 'places' && config.architecture === 'sd3') data.set(positionTable(config));
    if (begin === 'spread') {
      const stream = new RandomStream(seed, 'init', name);
      const deviation = Math.sqrt(shape[0] / data.length);
      for (let i = 0; i < data.length; i++) data[i] = deviation * stream.normal();
    }
    out.set(name, { shape, data });
  }
  return out;
}
