/** The tiny world's edits, written in the codes of an image tokenizer. */
import { join } from 'node:path';
import { loadVisionTokenizer } from '../../environments/vision_tokens.js';
import { modelFolder, type RunResolver } from '../../models/reference.js';
import { hasTinyEdits, makeTinyEdits } from '../../tiny/world/dataset.js';
import type { ImageEditSettings } from './settings.js';

/** Makes them where a config asks for them and they are not there yet; needs the finished tokenizer that `environment.model` names. */
export async function makeData(
  settings: ImageEditSettings,
  resolveRun: RunResolver,
  say: (line: string) => void,
): Promise<void> {
  const { dir, tiny } = settings.data;
  if (tiny === null) return;
  const { folder, seed, grid, cell, counts } = tiny;
  const root = join(dir, folder);
  const { train, prompts, validation, truth } = counts;
  const sizes = { train, prompts, validation, truth };
  const options = { seed, geometry: { columns: grid, rows: grid, cell }, sizes };
  const tokenizer = loadVisionTokenizer(modelFolder(settings.environment.model, resolveRun), { provider: 'cpu' });
  try {
    if (hasTinyEdits(root, options, tokenizer.id)) return;
    say(`making the tiny world's edits in ${root}`);
    await makeTinyEdits(root, options, tokenizer);
  } finally {
    await tokenizer.dispose();
  }
}
