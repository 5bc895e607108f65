/** A model's folder in the Hugging Face layout, small enough for plain loops. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { encodeSafetensors } from '../../../src/core/safetensors.js';
import { initDecoder, type DecoderConfig } from '../../../src/nets/decoder/config.js';

export const smallConfig: DecoderConfig = {
  vocab_size: 11,
  hidden_size: 8,
  intermediate_size: 12,
  num_hidden_layers: 1,
  num_attention_heads: 2,
  num_key_value_heads: 1,
  head_dim: 4,
  rope_theta: 10_000,
  rms_norm_eps: 1e-6,
  attention_bias: false,
  tie_word_embeddings: false,
};

export function writeSmallBase(folder: string, seed = 1): string {
  const weights = initDecoder(smallConfig, { embedding_std: 0.8, initializer_range: 0.5 }, seed);
  writeFileSync(join(folder, 'config.json'), JSON.stringify(smallConfig));
  writeFileSync(join(folder, 'model.safetensors'), encodeSafetensors(weights));
  return folder;
}
