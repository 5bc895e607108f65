/**
 * Opens Emu3's vision tokenizer from its folder: BAAI's, or the one that transformers saves, alone or within an Emu3.
 */
import { join } from 'node:path';
import { CheckpointError } from '../../core/errors.js';
import type { Shape } from '../../compute/graph/ir.js';
import { checkWeights, CONFIG_FILE, readWeights, tensorFiles, type TensorFiles, type Weights } from '../files.js';
import { readEmu3Vision, WHOLE, type Emu3VisionConfig } from '../../compute/nets/emu3_vision/config.js';
import { emu3VisionParameters } from '../../compute/nets/emu3_vision/tokenizer.js';

/** The number of batches that a norm has counted in training. No result depends on it. */
const WITHOUT_EFFECT = /\.num_batches_tracked$/;
/** Before the names of its tensors within an Emu3, by the version of transformers. */
const WITHIN = /^(?:model\.)?vqmodel\./;

interface Stored {
  readonly files: TensorFiles;
  readonly expected: ReadonlyMap<string, Shape>;
  /** From a parameter's name to that in the files. */
  readonly stored: (name: string) => string;
}

type Json = Readonly<Record<string, unknown>>;

/**
 * Checks the input of `openEmu3Vision` without reading weights. Raises CheckpointError for a folder without weights,
 * for unsupported settings, for the first tensor that is missing or has another shape, and for unused tensors.
 */
export function checkEmu3Vision(folder: string, json: Json): Emu3VisionConfig {
  const config = readEmu3Vision(json, join(folder, CONFIG_FILE));
  const { files, expected, stored } = storedIn(folder, config, json['model_type'] === WHOLE);
  checkWeights(files, expected, stored);
  return config;
}

/** Reads it. Raises the CheckpointErrors of `checkEmu3Vision`, and for numbers that are not finite. */
export function openEmu3Vision(
  folder: string,
  json: Json,
): { readonly config: Emu3VisionConfig; readonly weights: Weights } {
  const config = readEmu3Vision(json, join(folder, CONFIG_FILE));
  const { files, expected, stored } = storedIn(folder, config, json['model_type'] === WHOLE);
  return { config, weights: readWeights(files, expected, stored) };
}

function storedIn(folder: string, config: Emu3VisionConfig, within: boolean): Stored {
  const files = tensorFiles(folder);
  const [found] = [...files.keys()].flatMap((name) => WITHIN.exec(name) ?? []);
  if (within && found === undefined) {
    throw new CheckpointError('this Emu3 has no image tokenizer: no tensor is under vqmodel', {
      where: folder,
      next: 'Name the folder of BAAI/Emu3-VisionTokenizer.',
    });
  }
  const prefix = within ? found : '';
  const stored = (name: string): string => prefix + name;
  const expected = emu3VisionParameters(config);
  const known = new Set([...expected.keys()].map(stored));
  // Within an Emu3, everything that is not under the prefix is the language model's.
  const unread = [...files.keys()].filter(
    (name) => name.startsWith(prefix) && !known.has(name) && !WITHOUT_EFFECT.test(name),
  );
  if (unread.length === 0) return { files, expected, stored };
  const more = unread.length > 3 ? ` and ${unread.length - 3} more` : '';
  throw new CheckpointError(`unused tensors: ${unread.slice(0, 3).join(', ')}${more}`, {
    where: files.get(unread[0]) ?? folder,
    next: `They belong to another model than ${CONFIG_FILE} describes. Name a checkpoint of the described model.`,
  });
}
