/** The tiny world's edits, written in the codes of an image tokenizer. */
import { loadVisionTokenizer } from '../../environments/vision_tokens.js';
import { modelFolder, type RunResolver } from '../../models/reference.js';
import { hasTinyEdits, makeTinyEdits } from '../../tiny/world/dataset.js';
import { imageEditTokens, type ImageEditSettings } from './settings.js';

/** Makes them where a config asks for them and they are not there yet; needs the finished tokenizer that `environment.model` names. */
export async function makeData(
  settings: ImageEditSettings,
  resolveRun: RunResolver,
  say: (line: string) => void,
): Promise<void> {
  const data = imageEditTokens.tinyData(settings);
  if (data === null) return;
  const { seed, grid, cell, counts } = data.world;
  const { train, prompts, validation, truth } = counts;
  const sizes = { train, prompts, validation, truth };
  const options = { seed, geometry: { columns: grid, rows: grid, cell }, sizes };
  const tokenizer = loadVisionTokenizer(modelFolder(settings.environment.model, resolveRun), { provider: 'cpu' });
  try {
    if (hasTinyEdits(data.folder, options, tokenizer.id)) return;
    say(`making the tiny world's edits in ${data.folder}`);
    await makeTinyEdits(data.folder, options, tokenizer);
  } finally {
    await tokenizer.dispose();
  }
}
