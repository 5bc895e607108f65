/** The tiny world of signs, as a dataset of every recipe that learns from them. */
import type { TinySignSettings } from '../schema/data.js';
import { makeTinySigns, signWorld, tinySigns, type SignWorld } from '../tiny/world/sign_scenes.js';
import { tinyDataset } from './tiny_data.js';

export const signData = tinyDataset<TinySignSettings, SignWorld>({
  things: 'signs',
  optionsOf: signWorld,
  find: tinySigns,
  make: makeTinySigns,
});
