/** A token policy's model, from a folder or from random weights. */
import { CheckpointError } from '../../core/errors.js';
import { initDecoder } from '../../nets/decoder/config.js';
import type { LoraSettings } from '../../nets/lora.js';
import type { DecoderInit } from '../../schema/model.js';
import { descriptionOf, digestOfWeights } from '../adapter_files.js';
import { adapt, describeModel, openModel } from './adapter.js';
import type { TokenPrompt } from './batch.js';
import type { TokenFormat } from './format.js';
import type { PolicyModel } from './model.js';

/** Adapters that a policy is trained with, and the seed that they begin from. */
export interface FreshAdapter {
  readonly lora: LoraSettings;
  readonly seed: number;
}

/**
 * Loads a policy that writes in `format`, with fresh adapters where such are asked for. Raises CheckpointError as `openModel` does, and where
 * the format has other tokens than the model; ConfigError for adapters that match no layer.
 */
export function loadPolicy<P extends TokenPrompt>(
  folder: string,
  format: TokenFormat<P>,
  fresh: FreshAdapter | null = null,
): PolicyModel<P> {
  requireTokens(format, describeModel(folder).vocab_size, folder);
  const { config, weights } = openModel(folder);
  if (fresh === null) return { config, format, weights, description: descriptionOf(folder) };
  const adapter = { lora: fresh.lora, base: folder, baseDigest: digestOfWeights(folder) };
  return { ...adapt(config, weights, fresh.lora, { seed: fresh.seed }), format, adapter };
}

/** Raises CheckpointError, naming `where`, for a format of other tokens than a model has. Rows without a token are usual; a format of two parts divides them all. */
export function requireTokens(
  { size, secondPart }: Pick<TokenFormat, 'size' | 'secondPart'>,
  rows: number,
  where: string,
): void {
  if (secondPart === null ? size <= rows : size === rows) return;
  throw new CheckpointError(`the model has ${rows} tokens, its tokenizer ${size}`, {
    where,
    next: 'Name the tokenizer that the model was trained with in policy.tokenizer.',
  });
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
