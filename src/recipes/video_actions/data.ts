/** The tiny world in motion, as this recipe's dataset. */
import { makeTinyClips, tinyClips, type ClipOptions } from '../../tiny/world/clips.js';
import { tinyDataset } from '../tiny_data.js';
import type { VideoActionsSettings } from './settings.js';

export const clipData = tinyDataset<NonNullable<VideoActionsSettings['data']['tiny']>, ClipOptions>({
  things: 'clips',
  optionsOf: ({ seed, counts, lists }) => ({ seed, sizes: counts, lists }),
  find: tinyClips,
  make: makeTinyClips,
});
