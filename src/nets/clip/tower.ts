/**
 * What CLIP and SigLIP share: words and patches as tokens, and the layers over them, by the names of Hugging Face's models.
 *
 * Axis letters: B samples, T tokens of a text or N of a picture, W width, S side of a picture.
 */
import { add, conv, gelu, mul, reshape, slice, transpose } from '../../graph/build.js';
import type { Graph, Value } from '../../graph/ir.js';
import { attendAll } from '../decoder/attention.js';
import { StreamHeads } from '../flow/heads.js';
import { embedding, geluExact, layerNorm, linear, quickGelu } from '../layers.js';
import type { TextTowerConfig, TowerActivation, TowerConfig, VisionTowerConfig } from './config.js';

const activations: Readonly<Record<TowerActivation, (x: Value) => Value>> = {
  quick_gelu: quickGelu,
  gelu: geluExact,
  gelu_pytorch_tanh: gelu,
};

/** The tokens of texts, ids [B, T], with their places: [B, T, W]. */
export function wordTokens(config: TextTowerConfig, half: string, ids: Value): Value {
  const { graph } = ids;
  const [batch, length] = ids.shape as [number, number];
  const { hidden_size: width, vocab_size } = config;
  const words = embedding(graph, `${half}.embeddings.token_embedding`, ids, vocab_size, width);
  const places = positions(graph, half, config.max_position_embeddings, width);
  return add(reshape(words, [batch, length, width]), slice(places, 0, 0, length));
}

/** How many squares of pixels a picture has. */
export function patchCount({ image_size, patch_size }: VisionTowerConfig): number {
  return Math.floor(image_size / patch_size) ** 2;
}

/** The squares of pictures [B, 3, S, S], without places: [B, N, W]. */
export function patchTokens(config: VisionTowerConfig, half: string, pixels: Value, bias: boolean): Value {
  const { graph } = pixels;
  const { hidden_size: width, patch_size: patch } = config;
  const name = `${half}.embeddings.patch_embedding`;
  const kernels = graph.parameter(`${name}.weight`, [width, 3, patch, patch]);
  const options = bias ? { bias: graph.parameter(`${name}.bias`, [width]) } : {};
  const patches = conv(pixels, kernels, { strides: [patch, patch], ...options });
  return transpose(reshape(patches, [pixels.shape[0], width, patchCount(config)]), [0, 2, 1]);
}

/** What is learnt of each place: [count, W]. */
export function positions(graph: Graph, half: string, count: number, width: number): Value {
  return graph.parameter(`${half}.embeddings.position_embedding.weight`, [count, width]);
}

/** The layers of one half over tokens [B, T, W], by rows: [B * T, W]. */
export function tower(config: TowerConfig, half: string, x: Value, mask: Value | null): Value {
  return towerLayers(config, half, x, mask, 0, config.num_hidden_layers);
}

/** The layers from `first` to before `end`. */
export function towerLayers(
  config: TowerConfig,
  half: string,
  x: Value,
  mask: Value | null,
  first: number,
  end: number,
): Value {
  const { hidden_size: width, num_attention_heads: heads, layer_norm_eps: eps } = config;
  const [batch, length] = x.shape as [number, number];
  const depth = width / heads;
  const streams = new StreamHeads(x.graph, { batch, heads, depth }, length);
  let rows = reshape(x, [batch * length, width]);
  for (let i = first; i < end; i++) {
    const layer = `${half}.encoder.layers.${i}`;
    const entered = layerNorm(rows, `${layer}.layer_norm1`, eps);
    const project = (part: string): Value =>
      streams.split(linear(entered, `${layer}.self_attn.${part}_proj`, width, true));
    const queries = mul(project('q'), x.graph.scalar(1 / Math.sqrt(depth)));
    const mixed = attendAll(queries, { keys: project('k'), values: project('v'), mask });
    rows = add(rows, linear(streams.join(mixed, 0), `${layer}.self_attn.out_proj`, width, true));
    rows = add(rows, feedForward(config, `${layer}.mlp`, layerNorm(rows, `${layer}.layer_norm2`, eps)));
  }
  return rows;
}

/** Over rows [R, W]. */
export function feedForward(config: TowerConfig, name: string, rows: Value): Value {
  const inner = linear(rows, `${name}.fc1`, config.intermediate_size, true);
  return linear(activations[config.hidden_act](inner), `${name}.fc2`, config.hidden_size, true);
}
