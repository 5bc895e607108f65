/**
 * CLIP (Radford et al., 2021) by the names of Hugging Face's CLIPModel: texts and pictures as vectors of one space, which the cosine compares.
 *
 * Axis letters: B samples, T tokens of a text or N of a picture, W width, H heads, D depth of a head, E width of the shared space.
 */
import { RandomStream } from '../../core/random.js';
import type { FloatTensor } from '../../core/safetensors.js';
import { add, argMin, cast, concat, equal, expand, gather, neg, reshape, slice, sub } from '../../graph/build.js';
import { Graph, sizeOf, type Shape, type Value } from '../../graph/ir.js';
import { causalMask } from '../decoder/attention.js';
import { layerNorm, linear } from '../layers.js';
import { UNTOLD_END, type ClipConfig } from './config.js';
import { patchCount, patchTokens, positions, tower, wordTokens } from './tower.js';

/** The logarithm of what cosines are multiplied by before they are compared. */
export const LOGIT_SCALE = 'logit_scale';

/** Embeds texts: ids [B, T], int64, to [B, E], taken at each text's first end token, which attends to everything before it. Not normalised. */
export function embedTexts({ text, projection_dim: space }: ClipConfig, ids: Value): Value {
  const x = wordTokens(text, 'text_model', ids);
  const out = tower(text, 'text_model', x, causalMask(ids.graph, 1, ids.shape[1]));
  const rows = layerNorm(out, 'text_model.final_layer_norm', text.layer_norm_eps);
  return linear(gather(rows, endPlaces(ids, text.eos_token_id)), 'text_projection', space);
}

/** Pictures [B, 3, S, S], preprocessed, to [B, E]: what becomes of the token that stands for all of it. Not normalised. */
export function embedPictures(
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
export function endPlaces(ids: Value, end: number): Value {
  const { graph } = ids;
  const [batch, length] = ids.shape as [number, number];
  // Numbers that are least at the end; the first of several least ones counts.
  const apart =
    end === UNTOLD_END
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
