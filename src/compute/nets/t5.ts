/**
 * T5's encoder (Raffel et al., 2020), with the names of Hugging Face's T5Config and T5EncoderModel: ids to the states
 * of each token.
 * Axis letters: T tokens, W width, H heads, D depth of a head.
 */
import { z } from 'zod';
import { CheckpointError } from '../../core/errors.js';
import { add, gather, reshape, transpose } from '../graph/build.js';
import type { Graph, Value } from '../graph/ir.js';
import { attendAll } from './decoder/attention.js';
import { StreamHeads } from './flow/heads.js';
import { embedding, geglu, linear, rmsNorm } from './layers.js';

/** T5 (Raffel et al., 2020) in its version 1.1, whose feed-forward layers are gated (Shazeer, 2020). */
export interface T5Config {
  readonly vocab_size: number;
  readonly d_model: number;
  /** Width of a head. num_heads * d_kv need not equal d_model. */
  readonly d_kv: number;
  readonly d_ff: number;
  readonly num_layers: number;
  readonly num_heads: number;
  readonly relative_attention_num_buckets: number;
  readonly relative_attention_max_distance: number;
  readonly layer_norm_epsilon: number;
}

const size = z.int().positive();
const fields = {
  vocab_size: size.default(32_128),
  d_model: size.default(512),
  d_kv: size.default(64),
  d_ff: size.default(2048),
  num_layers: size.default(6),
  num_heads: size.default(8),
  relative_attention_num_buckets: z.int().min(4).multipleOf(4).default(32),
  relative_attention_max_distance: size.default(128),
  layer_norm_epsilon: z.number().positive().default(1e-6),
};
const any = z.unknown().optional();
const covered = z.strictObject({
  ...fields,
  model_type: z.literal('t5'),
  feed_forward_proj: z.literal('gated-gelu', 'only gated-gelu is supported'),
  // transformers derives these from feed_forward_proj, which takes precedence.
  dense_act_fn: z.literal('gelu_new').nullish(),
  is_gated_act: z.literal(true).nullish(),
  is_decoder: z.literal(false).nullish(),
  // Ignored keys. They configure the decoder, training and generation, or describe the file.
  ...Object.fromEntries(
    [
      '_attn_implementation_autoset',
      '_name_or_path',
      'architectures',
      'bos_token_id',
      'classifier_dropout',
      'decoder_start_token_id',
      'dropout_rate',
      'dtype',
      'eos_token_id',
      'initializer_factor',
      'is_encoder_decoder',
      'n_positions',
      'num_decoder_layers',
      'output_past',
      'pad_token_id',
      'scale_decoder_outputs',
      'task_specific_params',
      'tie_encoder_decoder',
      'tie_word_embeddings',
      'torch_dtype',
      'transformers_version',
      'use_cache',
    ].map((key) => [key, any]),
  ),
});

/**
 * Reads an encoder's `config.json`. Raises CheckpointError, naming `where`, for another kind of model and for unknown
 * settings.
 */
export function readT5Config(json: unknown, where: string): T5Config {
  const issue = covered.safeParse(json).error?.issues[0];
  if (issue === undefined) return z.object(fields).parse(json);
  throw new CheckpointError(`T5: ${[...issue.path, issue.message].join(': ')}`, {
    where,
    next: 'Name a T5 1.1 encoder, such as the one of FLUX or Stable Diffusion 3, in the format of transformers.',
  });
}

/**
 * The states [1, T, W] of the last layer for int64 ids [1, T]. Every token attends to all others, including padding.
 */
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
    const normalized = rmsNorm(rows, `${feedForward}.layer_norm`, eps);
    const layer = (part: string): Value => linear(normalized, `${feedForward}.DenseReluDense.${part}`, config.d_ff);
    rows = add(rows, linear(geglu(layer('wi_0'), layer('wi_1')), `${feedForward}.DenseReluDense.wo`, width));
  }
  return reshape(rmsNorm(rows, 'encoder.final_layer_norm', eps), [1, length, width]);
}

/** The position bias of all layers: a number for each head and each bucket of distances, [1, H, T, T]. */
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

/**
 * The bucket of the distance from a query to a key. Half of the buckets are for later keys. In each half, one half has
 * single distances and the other grows logarithmically.
 */
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
  // In float32 as in torch, because rounding decides at the borders of buckets.
  const share = Math.fround(Math.fround(Math.log(Math.fround(far / exact))) / Math.fround(Math.log(farthest / exact)));
  return first + Math.min(half - 1, exact + Math.floor(Math.fround(share * (half - exact))));
}
