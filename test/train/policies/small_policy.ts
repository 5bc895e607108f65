/** A vocabulary and a random decoder that are small enough for plain computations. */
import { RandomStream } from '../../../src/core/random.js';
import type { CodeGrid } from '../../../src/data/types.js';
import { initDecoder, type DecoderConfig } from '../../../src/compute/nets/decoder/config.js';
import {
  Emu3Format,
  type Emu3Prompt,
  jointVocabularyJson,
  SPECIAL,
  TokenSpace,
  type Emu3Forms,
} from '../../../src/train/policies/tokens/emu3.js';
import type { PolicyModel } from '../../../src/models/adapters/policy_model.js';
import { WordTokenizer } from '../../../src/models/tokenizer/words.js';

export const CODES = 6;

export function smallTokenizer(): WordTokenizer {
  const words = ['remove', 'the', 'red', 'circle', "Let's", 'think'];
  return new WordTokenizer(jointVocabularyJson(words, CODES), 'small');
}

/** Everything but an image's codes is forced, and prompts have words around their parts. */
export const FORCED: Emu3Forms = { chatWords: true, imageHeader: 'forced', endAfterImage: false };
/** EARL's. */
export const SAMPLED: Emu3Forms = { chatWords: false, imageHeader: 'sampled', endAfterImage: true };

export function smallSpace(forms = FORCED): TokenSpace {
  return new TokenSpace(smallTokenizer(), forms);
}

export function grid(height: number, width: number, start = 0): CodeGrid {
  return { height, width, codes: Int32Array.from({ length: height * width }, (_, i) => (start + i) % CODES) };
}

/** As `TokenSpace.words`, without waiting. */
export function words(space: TokenSpace, instruction: string, prefill: string): number[] {
  const tokenizer = smallTokenizer();
  const between = space.forms.chatWords ? ['ASSISTANT:'] : [];
  return tokenizer.encode([instruction, ...between, prefill].join(' '));
}

/** A prompt whose answer begins inside the image block. */
export function openPrompt(space: TokenSpace, instruction = 'remove the red circle', start = 0): Emu3Prompt {
  return {
    ids: space.prompt(grid(2, 2, start), words(space, instruction, SPECIAL.imageStart)),
    height: 2,
    width: 2,
    imageOpen: true,
  };
}

/** A prompt after which the policy writes text first. */
export function textPrompt(space: TokenSpace, instruction = 'remove the circle'): Emu3Prompt {
  return { ids: space.prompt(grid(2, 2, 1), words(space, instruction, '')), height: 2, width: 2, imageOpen: false };
}

/** Grouped queries and biases, so that no part of the decoder is trivial. */
export function smallModel(space: TokenSpace, seed = 1): PolicyModel<Emu3Prompt> {
  const config: DecoderConfig = {
    vocab_size: space.size,
    hidden_size: 12,
    intermediate_size: 16,
    num_hidden_layers: 2,
    num_attention_heads: 2,
    num_key_value_heads: 1,
    head_dim: 6,
    rope_theta: 10000,
    rms_norm_eps: 1e-6,
    attention_bias: true,
    tie_word_embeddings: false,
  };
  const weights = initDecoder(config, { embedding_std: 0.5, initializer_range: 0.3 }, seed);
  for (const [name, tensor] of weights) {
    const stream = new RandomStream(seed, 'perturb', name);
    if (name.endsWith('bias')) tensor.data.forEach((_, i) => (tensor.data[i] = 0.2 * stream.normal()));
  }
  return { config, format: new Emu3Format(space), weights };
}
