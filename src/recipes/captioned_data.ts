/** The tiny world's captioned pictures, as a dataset of every recipe that learns from them. */
import type { TinyCaptionedSettings } from '../schema/data.js';
import { makeTinyCaptioned, tinyCaptioned, type CaptionedOptions } from '../tiny/world/captioned.js';
import { tinyDataset } from './tiny_data.js';

export const captionedData = tinyDataset<TinyCaptionedSettings, CaptionedOptions>({
  things: 'captioned pictures',
  optionsOf: ({ seed, counts }) => ({ seed, sizes: counts }),
  find: tinyCaptioned,
  make: makeTinyCaptioned,
});
