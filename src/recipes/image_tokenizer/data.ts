/** The tiny world's images, which the tokenizer learns from. */
import { makeTinyImages } from '../../tiny/world/dataset.js';
import { imageTokenizer, type ImageTokenizerSettings } from './settings.js';

/** Makes them where a config asks for them and they are not there yet. */
export async function makeData(settings: ImageTokenizerSettings): Promise<void> {
  const data = imageTokenizer.tinyData(settings);
  if (data === null) return;
  const { seed, grid, cell, counts } = data.world;
  await makeTinyImages(data.folder, { seed, geometry: { columns: grid, rows: grid, cell }, count: counts.images });
}
