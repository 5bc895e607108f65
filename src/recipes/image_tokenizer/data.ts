/** The tiny world's images, which the tokenizer learns from. */
import { makeTinyImages, tinyImages, type TinyImageOptions } from '../../tiny/world/dataset.js';
import { tinyDataset } from '../tiny_data.js';
import type { ImageTokenizerSettings } from './settings.js';

export const imageData = tinyDataset<NonNullable<ImageTokenizerSettings['data']['tiny']>, TinyImageOptions>({
  things: 'images',
  optionsOf: ({ seed, grid, cell, counts }) => ({
    seed,
    geometry: { columns: grid, rows: grid, cell },
    count: counts.images,
  }),
  find: tinyImages,
  make: makeTinyImages,
});
