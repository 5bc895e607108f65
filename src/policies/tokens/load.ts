/** A token policy's model, from a folder or from random weights. */
import { join } from 'node:path';
import { CheckpointError } from '../../core/errors.js';
import { TOKENIZER_FILE } from '../../models/files.js';
import { initDecoder } from '../../nets/decoder/config.js';
import { describeDecoder, openDecoder } from '../../nets/decoder/files.js';
import type { DecoderInit } from '../../schema/model.js';
import type { TokenPrompt } from './batch.js';
import type { TokenFormat } from './format.js';
import type { PolicyModel } from './model.js';
import { WordTokenizer } from '../../models/tokenizer/words.js';

/** Loads a policy that writes in `format`. Raises CheckpointError as `openDecoder` does, and where the format has other tokens than the model. */
export function loadPolicy<P extends TokenPrompt>(folder: string, format: TokenFormat<P>): PolicyModel<P> {
  const { vocab_size } = describeDecoder(folder).config;
  if (format.size !== vocab_size) {
    throw new CheckpointError(`the model has ${vocab_size} tokens, its tokenizer ${format.size}`, {
      where: folder,
      next: 'Name the tokenizer that the model was trained with in policy.tokenizer.',
    });
  }
  const { config, weights } = openDecoder(folder);
  return { config, format, weights };
}

/** A policy of random weights that writes in `format`. Raises GraphError where the sizes do not go together. */
export function initPolicy<P extends TokenPrompt>(
  { initializer_range, embedding_std, head_dim, ...rest }: DecoderInit,
  format: TokenFormat<P>,
  seed: number,
): PolicyModel<P> {
  const heads = head_dim ?? rest.hidden_size / rest.num_attention_heads;
  const config = { ...rest, head_dim: heads, vocab_size: format.size };
  const scales = { embedding_std: embedding_std ?? initializer_range ?? 0.02, initializer_range };
  return { config, format, weights: initDecoder(config, scales, seed) };
}

export function loadTokenizer(folder: string): WordTokenizer {
  return WordTokenizer.read(join(folder, TOKENIZER_FILE));
}
