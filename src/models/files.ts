/** The files of a model's folder: config.json, weights and tokenizer.json, as on the Hub. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { CheckpointError } from '../core/errors.js';
import { readSafetensors, type FloatTensor } from '../core/safetensors.js';

export const POLICY_FILE = 'policy.safetensors';
export const TOKENIZER_FILE = 'tokenizer.json';
export const CONFIG_FILE = 'config.json';

/** A model's parameters by name. */
export type Weights = Map<string, FloatTensor>;

/** A file of a checkpoint: a text, or bytes, whole or in the order of their pieces. */
export type CheckpointContent = string | Uint8Array | readonly Uint8Array[];

/** The files of a checkpoint by their plain names. */
export type CheckpointFiles = Readonly<Record<string, CheckpointContent>>;

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

/** The model's config.json. Raises CheckpointError where it cannot be read. */
export function readConfig<T>(folder: string): T {
  const path = join(folder, CONFIG_FILE);
  try {
    return JSON.parse(readFileSync(path, 'utf8')) as T;
  } catch (cause) {
    throw new CheckpointError('cannot read the model config', { where: path, cause });
  }
}
