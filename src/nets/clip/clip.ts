/**
 * CLIP (Radford et al., 2021) by the names of Hugging Face's CLIPModel: texts and pictures as vectors of one space, which the cosine compares.
 *
 * Axis letters: B samples, T tokens of a text or N of a picture, W width, H heads, D depth of a head, E width of the shared space.
 */
import { RandomStream } from '../../core/random.js';
import type { FloatTensor } from '../../core/safetensors.js';
import {
  add,
  argMin,
  cast,
  concat,
  conv,
  equal,
  expand,
  gather,
  gelu,
  mul,
  reshape,
  slice,
  sub,
  transpose,
} from '../../graph/build.js';
import { Graph, sizeOf, type Shape, type Value } from '../../graph/ir.js';
import { attendAll, causalMask } from '../decoder/attention.js';
import { StreamHeads } from '../flow/heads.js';
import { embedding, layerNorm, linear } from '../layers.js';
import { CLIP_EPS, type ClipConfig, type ClipTowerConfig } from './config.js';

/** The logarithm of what cosines are multiplied by before they are compared. */
export const LOGIT_SCALE = 'logit_scale';

/** Embeds texts: ids [B, T], int64, to [B, E], taken at each text's first end token, which attends to everything before it. Not normalised. */
export function embedTexts(config: ClipConfig, ids: Value): Value {
  const { text, projection_dim: space } = config;
  const { graph } = ids;
  const [batch, length] = ids.shape as [number, number];
  const width = text.hidden_size;
  const words = embedding(graph, 'text_model.embeddings.token_embedding', ids, text.vocab_size, width);
  const places = positions(graph, 'text_model', text.max_position_embeddings, width);
  const x = add(reshape(words, [batch, length, width]), slice(places, 0, 0, length));
  const out = tower(text, 'text_model', x, causalMask(graph, 1, length));
  const rows = layerNorm(reshape(out, [batch * length, width]), 'text_model.final_layer_norm', CLIP_EPS);
  return linear(gather(rows, endPlaces(ids, text.eos_token_id)), 'text_projection', space);
}

/** Pictures [B, 3, S, S], preprocessed, to [B, E]: what becomes of the token that stands for all of it. Not normalised. */
export function embedPictures(config: ClipConfig, pixels: Value): Value {
  const { vision, projection_dim: space } = config;
  const { graph } = pixels;
  const [batch] = pixels.shape as [number];
  const { hidden_size: width, patch_size: patch } = vision;
  const tokens = (vision.image_size / patch) ** 2;
  const kernels = graph.parameter('vision_model.embeddings.patch_embedding.weight', [width, 3, patch, patch]);
  const patches = reshape(conv(pixels, kernels, { strides: [patch, patch] }), [batch, width, tokens]);
  const whole = expand(reshape(graph.parameter('vision_model.embeddings.class_embedding', [width]), [1, 1, width]), [
    batch,
    1,
    width,
  ]);
  const places = positions(graph, 'vision_model', tokens + 1, width);
  const x = add(concat([whole, transpose(patches, [0, 2, 1])], 1), places);
  const rows = layerNorm(reshape(x, [batch * (tokens + 1), width]), 'vision_model.pre_layrnorm', CLIP_EPS);
  const out = tower(vision, 'vision_model', reshape(rows, x.shape), null);
  const first = reshape(slice(out, 1, 0, 1), [batch, width]);
  return linear(layerNorm(first, 'vision_model.post_layernorm', CLIP_EPS), 'visual_projection', space);
}

function positions(graph: Graph, half: string, count: number, width: number): Value {
  return graph.parameter(`${half}.embeddings.position_embedding.weight`, [count, width]);
}

/** The row of [B * T] with each text's first end token: int64 [B]. */
function endPlaces(ids: Value, end: number): Value {
  const { graph } = ids;
  const [batch, length] = ids.shape as [number, number];
  const isEnd = cast(equal(ids, graph.constant(BigInt64Array.of(BigInt(end)), [1, 1])), 'float32');
  // The first of several least values counts.
  const at = cast(argMin(sub(graph.scalar(1), isEnd), 1), 'float32');
  const starts = graph.constant(
    Float32Array.from({ length: batch }, (_, b) => b * length),
    [batch],
  );
  return cast(add(reshape(at, [batch]), starts), 'int64');
}

/** The layers of one half over [B, T, W]. */
function tower(config: ClipTowerConfig, half: string, x: Value, mask: Value | null): Value {
  const [batch, length, width] = x.shape as [number, number, number];
  const heads = config.num_attention_heads;
  const depth = width / heads;
  const streams = new StreamHeads(x.graph, { batch, heads, depth }, length);
  let rows = reshape(x, [batch * length, width]);
  for (let i = 0; i < config.num_hidden_layers; i++) {
    const layer = `${half}.encoder.layers.${i}`;
    const entered = layerNorm(rows, `${layer}.layer_norm1`, CLIP_EPS);
    const project = (part: string): Value =>
      streams.split(linear(entered, `${layer}.self_attn.${part}_proj`, width, true));
    const queries = mul(project('q'), x.graph.scalar(1 / Math.sqrt(depth)));
    const mixed = attendAll(queries, { keys: project('k'), values: project('v'), mask });
    rows = add(rows, linear(streams.join(mixed, 0), `${layer}.self_attn.out_proj`, width, true));
    const inner = linear(
      layerNorm(rows, `${layer}.layer_norm2`, CLIP_EPS),
      `${layer}.mlp.fc1`,
      config.intermediate_size,
      true,
    );
    rows = add(rows, linear(gelu(inner), `${layer}.mlp.fc2`, width, true));
  }
  return reshape(rows, [batch, length, width]);
}

/** The input ids [B, T] and pixels [B, 3, S, S] of a graph for this many samples. */
export function clipInputs(graph: Graph, { text, vision }: ClipConfig, batch: number): { ids: Value; pixels: Value } {
  return {
    ids: graph.input('input_ids', [batch, text.max_position_embeddings], 'int64'),
    pixels: graph.input('pixel_values', [batch, 3, vision.image_size, vision.image_size]),
  };
}

/** Names and shapes of all parameters but the scale of logits. */
function clipParameters(config: ClipConfig): ReadonlyMap<string, Value> {
  const graph = new Graph('parameters');
  const { ids, pixels } = clipInputs(graph, config, 1);
  embedTexts(config, ids);
  embedPictures(config, pixels);
  return graph.parameters;
}

/** Spread of the embeddings of words, places and the picture's own token at the beginning. */
const EMBEDDING_STD = 0.1;

/** Random weights: layers of 1/sqrt(fan-in), and cosines that are multiplied by `logitScale` at first. */
export function initClip(config: ClipConfig, logitScale: number, seed: number): Map<string, FloatTensor> {
  const out = new Map<string, FloatTensor>([[LOGIT_SCALE, { shape: [], data: Float32Array.of(Math.log(logitScale)) }]]);
  for (const [name, { shape }] of clipParameters(config)) out.set(name, { shape, data: begun(name, shape, seed) });
  return out;
}

function begun(name: string, shape: Shape, seed: number): Float32Array {
  const data = new Float32Array(sizeOf(shape));
  const isEmbedding = /(token|position|class)_embedding/.test(name);
  if (shape.length === 1 && !isEmbedding) return data.fill(name.endsWith('.bias') ? 0 : 1);
  const stream = new RandomStream(seed, 'init', name);
  const deviation = isEmbedding ? EMBEDDING_STD : 1 / Math.sqrt(sizeOf(shape.slice(1)));
  return data.map(() => deviation * stream.normal());
}
