/** The tiny world's edits as pictures and words, as a dataset of every recipe that learns from them. */
import type { TinyPicturedSettings } from '../schema/seen_data.js';
import { makeTinyPictured, tinyPictured, type PicturedOptions } from '../tiny/world/pictured.js';
import { tinyDataset } from './tiny_data.js';

export const picturedData = tinyDataset<TinyPicturedSettings, PicturedOptions>({
  things: 'pictured edits',
  optionsOf: ({ seed, grid, cell, set, names, counts }) => ({
    seed,
    geometry: { columns: grid, rows: grid, cell },
    set,
    names,
    sizes: counts,
  }),
  find: tinyPictured,
  make: makeTinyPictured,
});
