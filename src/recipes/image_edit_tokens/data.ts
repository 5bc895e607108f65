/** The tiny world's edits, written in the codes of an image tokenizer. */
import { join } from 'node:path';
import { loadVisionTokenizer } from '../../environments/vision_tokens.js';
import { modelFolder, type RunResolver } from '../../models/reference.js';
import { makeTinyEdits, tinyEdits, type TinyEditOptions } from '../../tiny/world/dataset.js';
import { pathIn } from '../../tiny/world/parts.js';
import type { ImageEditSettings } from './settings.js';

/** Makes them where a config asks for them and they are not there yet; needs the finished tokenizer that `environment.model` names. */
export async function makeData(
  settings: ImageEditSettings,
  resolveRun: RunResolver,
  say: (line: string) => void,
): Promise<void> {
  const world = worldOf(settings);
  if (world === null) return;
  const { root, options } = world;
  const tokenizer = loadVisionTokenizer(modelFolder(settings.environment.model, resolveRun), { provider: 'cpu' });
  try {
    if (tinyEdits(root, options, tokenizer.id) === null) say(`making the tiny world's edits in ${root}`);
    await makeTinyEdits(root, options, tokenizer);
  } finally {
    await tokenizer.dispose();
  }
}

/** Where a dataset lies that a config names by its path: the tiny world's edits differ with the tokenizer that wrote them. */
export function placesOf(settings: ImageEditSettings, tokenizerId: string): (path: string) => string {
  const world = worldOf(settings);
  if (world === null) return (path) => path;
  const folder = tinyEdits(world.root, world.options, tokenizerId);
  return (path) => pathIn(folder, world.root, path);
}

function worldOf({ data: { dir, tiny } }: ImageEditSettings): {
  readonly root: string;
  readonly options: Partial<TinyEditOptions>;
} | null {
  if (tiny === null) return null;
  const { folder, seed, grid, cell, counts } = tiny;
  const { train, prompts, validation, truth } = counts;
  const sizes = { train, prompts, validation, truth };
  return { root: join(dir, folder), options: { seed, geometry: { columns: grid, rows: grid, cell }, sizes } };
}
