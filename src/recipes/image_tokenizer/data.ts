/** The tiny world's images, which the tokenizer learns from. */
import { join } from 'node:path';
import { makeTinyImages } from '../../tiny/world/dataset.js';
import type { ImageTokenizerSettings } from './settings.js';

/** Makes them where a config asks for them and they are not there yet. */
export async function makeData(settings: ImageTokenizerSettings): Promise<void> {
  const { dir, tiny } = settings.data;
  if (tiny === null) return;
  const { folder, seed, grid, cell, counts } = tiny;
  const geometry = { columns: grid, rows: grid, cell };
  await makeTinyImages(join(dir, folder), { seed, geometry, count: counts.images });
}
