/**
 * CLIP (Radford et al., 2021) and SigLIP (Zhai et al., 2023), with the names of Hugging Face's models. They embed texts
 * and images in one space, in which the cosine compares them. CLIP's text half also conditions image models.
 * Axis letters: B samples, T tokens of a text or N of an image, W width, S side of an image, H heads, D depth of a
 * head, E width of the shared space.
 */
import { z } from 'zod';
import { CheckpointError } from '../../../core/errors.js';
import { RandomStream } from '../../../core/random.js';
import type { FloatTensor } from '../../../core/safetensors.js';
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
  neg,
  reshape,
  slice,
  sub,
  transpose,
} from '../../graph/build.js';
import { Graph, type Shape, sizeOf, type Value } from '../../graph/ir.js';
import { attendAll, causalMask } from '../decoder/attention.js';
import { StreamHeads } from '../flow/heads.js';
import { embedding, geluExact, layerNorm, linear, quickGelu } from '../layers.js';
import { sumOf } from '../lora.js';
import {
  type ClipConfig,
  clipText,
  fitting,
  type SiglipConfig,
  type TextTowerConfig,
  type TowerActivation,
  type TowerConfig,
  LEGACY_END,
  type VisionTowerConfig,
} from './config.js';

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

/** The number of patches of an image. */
export function patchCount({ image_size, patch_size }: VisionTowerConfig): number {
  return Math.floor(image_size / patch_size) ** 2;
}

/** The patches of images [B, 3, S, S], without positions: [B, N, W]. */
export function patchTokens(config: VisionTowerConfig, half: string, pixels: Value, bias: boolean): Value {
  const { graph } = pixels;
  const { hidden_size: width, patch_size: patch } = config;
  const name = `${half}.embeddings.patch_embedding`;
  const kernels = graph.parameter(`${name}.weight`, [width, 3, patch, patch]);
  const options = bias ? { bias: graph.parameter(`${name}.bias`, [width]) } : {};
  const patches = conv(pixels, kernels, { strides: [patch, patch], ...options });
  return transpose(reshape(patches, [pixels.shape[0], width, patchCount(config)]), [0, 2, 1]);
}

/** The learned position embeddings: [count, W]. */
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

/** The logarithm of the factor of the cosines. */
export const LOGIT_SCALE = 'logit_scale';

/**
 * Embeds texts: int64 ids [B, T] to [B, E], from each text's first end token, which attends to all tokens before it.
 * Not normalized.
 */
export function embedTexts({ text, projection_dim: space }: ClipConfig, ids: Value): Value {
  const x = wordTokens(text, 'text_model', ids);
  const out = tower(text, 'text_model', x, causalMask(ids.graph, 1, ids.shape[1]));
  const rows = layerNorm(out, 'text_model.final_layer_norm', text.layer_norm_eps);
  return linear(gather(rows, endRows(ids, text.eos_token_id)), 'text_projection', space);
}

/** Embeds preprocessed images [B, 3, S, S] as [B, E], from the class token. Not normalized. */
export function embedImages(
  { vision, projection_dim: space }: Pick<ClipConfig, 'vision' | 'projection_dim'>,
  pixels: Value,
): Value {
  const { graph } = pixels;
  const [batch] = pixels.shape as [number];
  const { hidden_size: width, layer_norm_eps: eps } = vision;
  const length = patchCount(vision) + 1;
  const patches = patchTokens(vision, 'vision_model', pixels, false);
  const whole = expand(reshape(graph.parameter('vision_model.embeddings.class_embedding', [width]), [1, 1, width]), [
    batch,
    1,
    width,
  ]);
  const x = add(concat([whole, patches], 1), positions(graph, 'vision_model', length, width));
  const rows = layerNorm(reshape(x, [batch * length, width]), 'vision_model.pre_layrnorm', eps);
  const out = tower(vision, 'vision_model', reshape(rows, x.shape), null);
  const first = reshape(slice(reshape(out, x.shape), 1, 0, 1), [batch, width]);
  return linear(layerNorm(first, 'vision_model.post_layernorm', eps), 'visual_projection', space);
}

/** The row of [B * T] with the token that each text ends with: int64 [B]. */
export function endRows(ids: Value, end: number): Value {
  const { graph } = ids;
  const [batch, length] = ids.shape as [number, number];
  // These numbers are smallest at the end token. Of equal numbers, the first one counts.
  const apart =
    end === LEGACY_END
      ? neg(cast(ids, 'float32'))
      : sub(graph.scalar(1), cast(equal(ids, graph.constant(BigInt64Array.of(BigInt(end)), [1, 1])), 'float32'));
  const at = cast(argMin(apart, 1), 'float32');
  const starts = graph.constant(
    Float32Array.from({ length: batch }, (_, b) => b * length),
    [batch],
  );
  return cast(add(reshape(at, [batch]), starts), 'int64');
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
  embedImages(config, pixels);
  return graph.parameters;
}

/** Spread of the embeddings of words and positions, and of the class token. */
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

/**
 * Embeds texts: int64 ids [B, T], padded to the model's text length, to [B, E], from the last token. Not normalized.
 */
export function embedSiglipTexts({ text }: SiglipConfig, ids: Value): Value {
  const [batch, length] = ids.shape as [number, number];
  const { hidden_size: width, layer_norm_eps: eps } = text;
  // Every token attends to every other, including padding.
  const out = tower(text, 'text_model', wordTokens(text, 'text_model', ids), null);
  const last = reshape(slice(reshape(out, [batch, length, width]), 1, length - 1, length), [batch, width]);
  return linear(layerNorm(last, 'text_model.final_layer_norm', eps), 'text_model.head', text.projection_size, true);
}

/** Embeds preprocessed images [B, 3, S, S] as [B, W], with the attention pooling head. Not normalized. */
export function embedSiglipImages({ vision }: Pick<SiglipConfig, 'vision'>, pixels: Value): Value {
  const { graph } = pixels;
  const [batch] = pixels.shape as [number];
  const [tokens, width] = [patchCount(vision), vision.hidden_size];
  const patches = patchTokens(vision, 'vision_model', pixels, true);
  const out = tower(vision, 'vision_model', add(patches, positions(graph, 'vision_model', tokens, width)), null);
  const rows = layerNorm(out, 'vision_model.post_layernorm', vision.layer_norm_eps);
  return pooled(vision, rows, batch, tokens);
}

/** Attention of a learned query to the rows [B * N, W] of each image: [B, W]. */
function pooled(vision: SiglipConfig['vision'], rows: Value, batch: number, tokens: number): Value {
  const { graph } = rows;
  const { hidden_size: width, num_attention_heads: heads, layer_norm_eps: eps } = vision;
  const name = 'vision_model.head';
  const depth = width / heads;
  const weight = graph.parameter(`${name}.attention.in_proj_weight`, [3 * width, width]);
  const bias = graph.parameter(`${name}.attention.in_proj_bias`, [3 * width]);
  /** Queries, keys or values: their rows of the joint projection. */
  const project = (x: Value, part: number): Value => {
    const [from, to] = [part * width, (part + 1) * width];
    return sumOf([{ rows: x, table: slice(weight, 0, from, to), scale: 1 }], slice(bias, 0, from, to));
  };
  const streams = new StreamHeads(graph, { batch, heads, depth }, tokens);
  const [keys, values] = [1, 2].map((part) => streams.split(project(rows, part)));
  const probe = reshape(graph.parameter(`${name}.probe`, [1, 1, width]), [1, width]);
  const query = reshape(mul(project(probe, 0), graph.scalar(1 / Math.sqrt(depth))), [1, heads, 1, depth]);
  const queries = expand(query, [batch, heads, 1, depth]);
  const mixed = reshape(attendAll(queries, { keys, values, mask: null }), [batch, width]);
  const found = linear(mixed, `${name}.attention.out_proj`, width, true);
  return add(found, feedForward(vision, `${name}.mlp`, layerNorm(found, `${name}.layernorm`, eps)));
}

/** `projection_dim`: width of the summary's projection. Null: no projection. */
export type ClipTextConfig = ClipConfig['text'] & { readonly projection_dim: number | null };

const any = z.unknown().optional();
const fields = clipText.extend({ projection_dim: z.int().positive().default(512) });
const covered = z.strictObject({
  ...fields.shape,
  model_type: z.literal('clip_text_model'),
  // Of training, and of the file itself. Texts are filled up by the tokenizer.
  ...Object.fromEntries(
    [
      '_attn_implementation_autoset',
      '_name_or_path',
      'architectures',
      'attention_dropout',
      'dropout',
      'dtype',
      'initializer_factor',
      'initializer_range',
      'pad_token_id',
      'torch_dtype',
      'transformers_version',
    ].map((key) => [key, any]),
  ),
});

/**
 * Reads the config.json of a CLIPTextModel, with or without a projection. Raises CheckpointError, naming `where`, for
 * another kind of model and for unknown settings.
 */
export function readClipText(json: unknown, where: string, projects: boolean): ClipTextConfig {
  const issue = covered.safeParse(json).error?.issues[0] ?? fitting(fields).safeParse(json).error?.issues[0];
  if (issue !== undefined) {
    throw new CheckpointError(`CLIP: ${[...issue.path, issue.message].join(': ')}`, {
      where,
      next: 'Name the text half of a CLIP as transformers saves it.',
    });
  }
  const { projection_dim, ...text } = fields.parse(json);
  return { ...text, projection_dim: projects ? projection_dim : null };
}

/** Width of the summary. */
export function summaryWidth({ projection_dim, hidden_size }: ClipTextConfig): number {
  return projection_dim ?? hidden_size;
}

/** For ids [1, T]: the states [1, T, W] before the last layer, and the output at the end token, [1, E]. */
export function encodeClipText(
  config: ClipTextConfig,
  ids: Value,
): { readonly states: Value; readonly summary: Value } {
  const [, length] = ids.shape as [number, number];
  const { hidden_size: width, num_hidden_layers: layers, layer_norm_eps: eps } = config;
  const mask = causalMask(ids.graph, 1, length);
  const x = wordTokens(config, 'text_model', ids);
  const before = reshape(towerLayers(config, 'text_model', x, mask, 0, layers - 1), [1, length, width]);
  const last = towerLayers(config, 'text_model', before, mask, layers - 1, layers);
  const end = gather(layerNorm(last, 'text_model.final_layer_norm', eps), endRows(ids, config.eos_token_id));
  const { projection_dim: space } = config;
  return { states: before, summary: space === null ? end : linear(end, 'text_projection', space) };
}
