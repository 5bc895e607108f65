/**
 * T5's encoder, by the names of Hugging Face's T5EncoderModel: ids to the states of each token.
 *
 * Axis letters: T tokens, W width, H heads, D depth of a head.
 */
import { add, gather, reshape, transpose } from '../../graph/build.js';
import type { Graph, Value } from '../../graph/ir.js';
import { attendAll } from '../decoder/attention.js';
import { StreamHeads } from '../flow/heads.js';
import { embedding, geglu, linear, rmsNorm } from '../layers.js';
import type { T5Config } from './config.js';

/** The states [1, T, W] of the last layer for ids [1, T], int64. Every token attends to all, those that fill the text up included. */
export function encodeT5(config: T5Config, ids: Value): Value {
  const { graph } = ids;
  const [, length] = ids.shape as [number, number];
  const { d_model: width, d_kv: depth, num_heads: heads, layer_norm_epsilon: eps } = config;
  const inner = heads * depth;
  const streams = new StreamHeads(graph, { batch: 1, heads, depth }, length);
  const mask = relativeBias(graph, config, length);
  let rows = embedding(graph, 'shared', ids, config.vocab_size, width);
  for (let i = 0; i < config.num_layers; i++) {
    const attention = `encoder.block.${i}.layer.0`;
    const entered = rmsNorm(rows, `${attention}.layer_norm`, eps);
    const project = (part: string): Value =>
      streams.split(linear(entered, `${attention}.SelfAttention.${part}`, inner));
    // Scores are not scaled: T5's initial weights are.
    const mixed = attendAll(project('q'), { keys: project('k'), values: project('v'), mask });
    rows = add(rows, linear(streams.join(mixed, 0), `${attention}.SelfAttention.o`, width));
    const feedForward = `encoder.block.${i}.layer.1`;
    const normalised = rmsNorm(rows, `${feedForward}.layer_norm`, eps);
    const layer = (part: string): Value => linear(normalised, `${feedForward}.DenseReluDense.${part}`, config.d_ff);
    rows = add(rows, linear(geglu(layer('wi_0'), layer('wi_1')), `${feedForward}.DenseReluDense.wo`, width));
  }
  return reshape(rmsNorm(rows, 'encoder.final_layer_norm', eps), [1, length, width]);
}

/** What is added to the scores of all layers: a number for each head and each bucket of distances, [1, H, T, T]. */
function relativeBias(graph: Graph, config: T5Config, length: number): Value {
  const { num_heads: heads, relative_attention_num_buckets: buckets } = config;
  const name = 'encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight';
  const table = graph.parameter(name, [buckets, heads]);
  const places = BigInt64Array.from({ length: length ** 2 }, (_, at) =>
    BigInt(bucketOf((at % length) - Math.floor(at / length), config)),
  );
  const found = gather(table, graph.constant(places, [length ** 2]));
  return transpose(reshape(found, [1, length, length, heads]), [0, 3, 1, 2]);
}

/** The bucket of a key's distance behind its query: half of them are for what comes later, half of each for single distances, the rest grow with the logarithm. */
export function bucketOf(
  distance: number,
  {
    relative_attention_num_buckets: buckets,
    relative_attention_max_distance: farthest,
  }: Pick<T5Config, 'relative_attention_num_buckets' | 'relative_attention_max_distance'>,
): number {
  const half = buckets / 2;
  const exact = half / 2;
  const first = distance > 0 ? half : 0;
  const far = Math.abs(distance);
  if (far < exact) return first + far;
  // As torch computes it, in float32: at a border the rounding decides.
  const share = Math.fround(Math.fround(Math.log(Math.fround(far / exact))) / Math.fround(Math.log(farthest / exact)));
  return first + Math.min(half - 1, exact + Math.floor(Math.fround(share * (half - exact))));
}
