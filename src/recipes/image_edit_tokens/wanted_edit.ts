/** Writes the user's edit as a dataset in the run's image codes. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { modelFolder, type RunResolver } from '../../models/reference.js';
import { openEditDataset } from '../../data/edits.js';
import { packDataset } from '../../data/pack.js';
import { editData } from '../../data/tiny/dataset.js';
import { loadVisionTokenizer } from '../../train/environments/vision_tokens.js';
import { imageCodes } from '../../train/policies/tokens/image_codes.js';
import type { WantedEdit } from '../recipe.js';
import type { ImageEditSettings } from './settings.js';

/**
 * Packs an edit into the run's image codes. The image gets the size of the run's held-out images, unless the
 * tokenizer's processor resizes it.
 */
export async function writeEdit(
  settings: ImageEditSettings,
  resolveRun: RunResolver,
  { image, instruction, count, folder }: WantedEdit,
): Promise<string> {
  const tokenizer = loadVisionTokenizer(modelFolder(settings.environment.model, resolveRun), { provider: 'cpu' });
  try {
    const { patch } = tokenizer.config;
    const [heldOut] = settings.data.validation;
    const { height, width } = openEditDataset(editData(tokenizer).placesOf(settings)(heldOut.path)).read(0).source;
    const instructions = join(folder, 'edit.jsonl');
    const line = JSON.stringify({ source: image, instruction, split: SPLIT });
    writeFileSync(instructions, `${line}\n`.repeat(count));
    const out = join(folder, 'packed');
    const size = tokenizer.sizing === null ? { height: height * patch, width: width * patch } : null;
    await packDataset({ instructions, out, size, codes: imageCodes(tokenizer) });
    return join(out, SPLIT);
  } finally {
    await tokenizer.dispose();
  }
}

const SPLIT = 'validation';
