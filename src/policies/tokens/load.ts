/** From a model's folder to a token policy. */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { CheckpointError } from '../../core/errors.js';
import { POLICY_FILE, readConfig, readWeights, TOKENIZER_FILE } from '../../models/files.js';
import type { DecoderConfig } from '../../nets/decoder/config.js';
import { checkDecoderConfig, decoderParameters } from '../../nets/decoder/config.js';
import type { PolicyModel } from './model.js';
import { TokenSpace } from './space.js';
import { WordTokenizer } from './tokenizer.js';

/** Loads a policy and its tokenizer. Raises CheckpointError naming the first tensor that is missing or of another shape. */
export function loadPolicy(folder: string, tokenizer: WordTokenizer): PolicyModel {
  const config = readConfig<DecoderConfig>(folder);
  checkDecoderConfig(config);
  const file = [POLICY_FILE, 'model.safetensors'].map((name) => join(folder, name)).find(existsSync);
  if (file === undefined) {
    throw new CheckpointError(`there is neither ${POLICY_FILE} nor model.safetensors`, { where: folder });
  }
  const expected = new Map([...decoderParameters(config)].map(([name, { shape }]) => [name, shape]));
  if (tokenizer.size !== config.vocab_size) {
    throw new CheckpointError(`the model has ${config.vocab_size} tokens, its tokenizer ${tokenizer.size}`, {
      where: folder,
      next: 'Name the tokenizer that the model was trained with in policy.tokenizer.',
    });
  }
  return { config, space: new TokenSpace(tokenizer), weights: readWeights(file, expected) };
}

export function loadTokenizer(folder: string): WordTokenizer {
  return WordTokenizer.read(join(folder, TOKENIZER_FILE));
}
