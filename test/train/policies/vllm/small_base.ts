/** A model's folder in the Hugging Face layout, small enough for plain loops. */
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { encodeSafetensors } from '../../../../src/core/safetensors.js';
import { initDecoder, type DecoderConfig } from '../../../../src/compute/nets/decoder/config.js';

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

/** A Llama of random weights that a real vLLM serves too: its config says so, and each token is a word. Heads have to be of a size that its kernels have. */
export function writeLlama(
  folder: string,
  sizes: DecoderConfig,
  init: Readonly<Record<'embedding_std' | 'initializer_range', number>>,
): string {
  mkdirSync(folder, { recursive: true });
  const family = { architectures: ['LlamaForCausalLM'], model_type: 'llama', hidden_act: 'silu', dtype: 'float32' };
  writeFileSync(join(folder, 'config.json'), JSON.stringify({ ...family, ...sizes, max_position_embeddings: 64 }));
  writeFileSync(join(folder, 'model.safetensors'), encodeSafetensors(initDecoder(sizes, init, 1), { format: 'pt' }));
  const vocab = Object.fromEntries(Array.from({ length: sizes.vocab_size }, (_each, id) => [`w${id}`, id]));
  const model = { type: 'WordLevel', vocab, unk_token: 'w0' };
  writeFileSync(join(folder, 'tokenizer.json'), JSON.stringify({ version: '1.0', added_tokens: [], model }));
  writeFileSync(join(folder, 'tokenizer_config.json'), '{"tokenizer_class": "PreTrainedTokenizerFast"}');
  return folder;
}
