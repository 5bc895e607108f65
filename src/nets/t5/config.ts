/** The config of T5's encoder, with the names of Hugging Face's `T5Config`, and what of it is supported. */
import { z } from 'zod';
import { CheckpointError } from '../../core/errors.js';

/** T5 (Raffel et al., 2020) in its version 1.1, whose feed-forward layers are gated (Shazeer, 2020). */
export interface T5Config {
  readonly vocab_size: number;
  readonly d_model: number;
  /** Width of a head; heads * d_kv need not be d_model. */
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
  feed_forward_proj: z.literal('gated-gelu', 'only gated-gelu is covered'),
  // What transformers makes of feed_forward_proj, which counts before these.
  dense_act_fn: z.literal('gelu_new').nullish(),
  is_gated_act: z.literal(true).nullish(),
  is_decoder: z.literal(false).nullish(),
  // Of the decoder, of training, of generation, and of the file itself.
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

/** Reads an encoder's `config.json`. Raises CheckpointError, naming `where`, for another kind of model and for settings that are not known. */
export function readT5Config(json: unknown, where: string): T5Config {
  const issue = covered.safeParse(json).error?.issues[0];
  if (issue === undefined) return z.object(fields).parse(json);
  throw new CheckpointError(`T5: ${[...issue.path, issue.message].join(': ')}`, {
    where,
    next: 'Name an encoder of T5 1.1, such as that of FLUX or Stable Diffusion 3, as transformers saves it.',
  });
}
