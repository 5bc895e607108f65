/** The parameters of flow transformers by name, and their initial values. */
import { RandomStream } from '../../core/random.js';
import type { FloatTensor } from '../../core/safetensors.js';
import type { Shape } from '../../graph/ir.js';
import { sizeOf } from '../../graph/ir.js';
import { adapterOf, type Adapter, type LoraSettings } from '../lora.js';
import {
  checkFlowConfig,
  innerWidth,
  jointForm,
  normsHeads,
  pooledWidth,
  singleLayers,
  velocityWidth,
  type FlowTransformerConfig,
} from './config.js';
import {
  flowNames,
  GUIDANCE,
  IP_KEY,
  IP_NORM,
  IP_PROJECTION,
  IP_VALUE,
  jointBlock,
  LAST,
  LAST_MODULATION,
  ownAttention,
  POOLED,
  POSITION_TABLE,
  singleBlock,
  singleNames,
  TIME,
  type AttentionNames,
} from './names.js';
import { placesTable } from './places.js';

/** Numbers that a noise level becomes before a layer reads it. */
export const SINUSOIDS = 256;
/** How much wider the feed-forward layers are than the streams. */
export const MLP_RATIO = 4;

/** A parameter's initial values: normal with 1/sqrt(fan-in), zeros, ones, or a table of positions. */
type Begin = 'spread' | 'zero' | 'one' | 'places';

interface Parameter {
  readonly shape: Shape;
  readonly begin: Begin;
}

class ParameterList {
  readonly parameters = new Map<string, Parameter>();
  readonly linearLayers: string[] = [];

  linear(name: string, inputs: number, outputs: number, begin: Begin = 'spread'): void {
    this.parameters.set(`${name}.weight`, { shape: [outputs, inputs], begin });
    this.parameters.set(`${name}.bias`, { shape: [outputs], begin: 'zero' });
    this.linearLayers.push(`${name}.weight`);
  }

  /** One weight for each of the width's elements. */
  scale(name: string, width: number): void {
    this.parameters.set(`${name}.weight`, { shape: [width], begin: 'one' });
  }
}

function listOf(config: FlowTransformerConfig): ParameterList {
  const list = new ParameterList();
  const width = innerWidth(config);
  const { attention_head_dim: depth, joint_attention_dim: textWidth, ip_adapter } = config;
  const names = flowNames[config.architecture];
  const twoLayers = (name: string, inputs: number): void => {
    list.linear(`${name}.linear_1`, inputs, width);
    list.linear(`${name}.linear_2`, width, width);
  };
  twoLayers(TIME, SINUSOIDS);
  if (config.architecture === 'flux' && config.guidance_embeds) twoLayers(GUIDANCE, SINUSOIDS);
  if (pooledWidth(config) > 0) twoLayers(POOLED, pooledWidth(config));
  if (names.textNorm !== null) list.scale(names.textNorm, textWidth);
  list.linear(names.textIn, textWidth, width);
  if (config.architecture === 'sd3') {
    const { pos_embed_max_size: places, patch_size: patch, in_channels } = config;
    list.parameters.set(POSITION_TABLE, { shape: [1, places ** 2, width], begin: 'places' });
    // A convolution, and so no layer that LoRA goes beside.
    const kernels = [width, in_channels / patch ** 2, patch, patch];
    list.parameters.set(`${names.imageIn}.weight`, { shape: kernels, begin: 'spread' });
    list.parameters.set(`${names.imageIn}.bias`, { shape: [width], begin: 'zero' });
  } else list.linear(names.imageIn, config.in_channels, width);
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
      list.linear(at('modulation'), width, vectors * width, 'zero');
      attention(stream, isWhole ? ['query', 'key', 'value', 'out'] : ['query', 'key', 'value']);
      if (!isWhole) continue;
      list.linear(at('up'), width, MLP_RATIO * width);
      list.linear(at('down'), MLP_RATIO * width, width);
    }
    if (dual) attention(ownAttention, ['query', 'key', 'value', 'out']);
    if (ip_adapter === null) continue;
    list.linear(`${jointBlock(i)}.${IP_KEY}`, textWidth, width);
    list.linear(`${jointBlock(i)}.${IP_VALUE}`, textWidth, width, 'zero');
  }
  for (let i = 0; i < singleLayers(config); i++) {
    const at = (part: keyof typeof singleNames): string => `${singleBlock(i)}.${singleNames[part]}`;
    list.linear(at('modulation'), width, 3 * width, 'zero');
    for (const part of ['query', 'key', 'value'] as const) list.linear(at(part), width, width);
    for (const part of ['queryNorm', 'keyNorm'] as const) list.scale(at(part), depth);
    list.linear(at('up'), width, MLP_RATIO * width);
    list.linear(at('out'), (1 + MLP_RATIO) * width, width);
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
 * Names and shapes of all parameters. Where no single block follows, the last joint block's text stream ends at its keys and values: the
 * layers after those are stored, as diffusers does, and `velocity` reads none of them.
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
 * have moved. Each parameter has a stream of its own, so that adding one changes no other. `wanted` says which parameters to make; default: all.
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
    if (begin === 'places' && config.architecture === 'sd3') data.set(placesTable(config));
    if (begin === 'spread') {
      const stream = new RandomStream(seed, 'init', name);
      const deviation = Math.sqrt(shape[0] / data.length);
      for (let i = 0; i < data.length; i++) data[i] = deviation * stream.normal();
    }
    out.set(name, { shape, data });
  }
  return out;
}
