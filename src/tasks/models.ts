/** From a model reference to files, and from files to models. A checkpoint holds config.json, weights and tokenizer.json, as on the Hub. */
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { CheckpointError } from '../core/errors.js';
import { readSafetensors } from '../core/safetensors.js';
import type { ModelReference } from '../config/settings.js';
import type { SessionOptions } from '../engines/onnx/session.js';
import { VisionTokenizer } from '../environments/vision_tokens.js';
import type { DecoderConfig } from '../nets/decoder/config.js';
import { checkDecoderConfig, decoderParameters } from '../nets/decoder/config.js';
import type { ImageTokenizerConfig } from '../nets/image_tokenizer.js';
import { imageTokenizerParameters } from '../nets/image_tokenizer.js';
import type { PolicyModel, Weights } from '../policies/tokens/model.js';
import { TokenSpace } from '../policies/tokens/space.js';
import { WordTokenizer } from '../policies/tokens/tokenizer.js';

export const POLICY_FILE = 'policy.safetensors';
export const TOKENIZER_FILE = 'tokenizer.json';
export const CONFIG_FILE = 'config.json';

/** Finds the folder of a finished run's model. Given by whoever knows run directories. */
export type RunResolver = (run: string) => string;

/** The folder that a reference names. Raises CheckpointError where it is not there or cannot be loaded yet. */
export function modelFolder(reference: ModelReference, resolveRun: RunResolver): string {
  if (typeof reference === 'string') {
    if (!existsSync(reference)) {
      throw new CheckpointError('there is no such model folder', {
        where: reference,
        next: 'Check the path, or name a run: {run, config}.',
      });
    }
    return reference;
  }
  if ('run' in reference) return resolveRun(reference.run);
  throw new CheckpointError(`loading Hub models (${reference.hub}) is not available in this version`, {
    next: 'At laptop size add --with configs/lib/tiny.libsonnet, or name a local folder.',
  });
}

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

/** Loads the environment's image tokenizer. */
export function loadVisionTokenizer(folder: string, session: SessionOptions): VisionTokenizer {
  const config = readConfig<ImageTokenizerConfig>(folder);
  return new VisionTokenizer(config, readWeights(join(folder, POLICY_FILE), imageTokenizerParameters(config)), session);
}

export function loadTokenizer(folder: string): WordTokenizer {
  return WordTokenizer.read(join(folder, TOKENIZER_FILE));
}

/** Reads all expected tensors as float32. */
export function readWeights(file: string, expected: ReadonlyMap<string, readonly number[]>): Weights {
  const weights = readSafetensors(file, [...expected.keys()]);
  for (const [name, shape] of expected) {
    const found = weights.get(name)?.shape ?? [];
    if (found.join() !== shape.join()) {
      throw new CheckpointError(
        `tensor ${name} has shape [${found.join(', ')}], the config asks for [${shape.join(', ')}]`,
        { where: file },
      );
    }
  }
  return weights;
}

function readConfig<T>(folder: string): T {
  const path = join(folder, CONFIG_FILE);
  try {
    return JSON.parse(readFileSync(path, 'utf8')) as T;
  } catch (cause) {
    throw new CheckpointError('cannot read the model config', { where: path, cause });
  }
}
