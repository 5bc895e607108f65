/** The tiny world in motion, as this recipe's dataset and vocabulary. */
import { join } from 'node:path';
import { makeTinyClips, tinyClips, type ClipOptions } from '../../tiny/world/clips.js';
import { pathIn } from '../../tiny/world/parts.js';
import type { VideoActionsSettings } from './settings.js';

/** Makes the clips where a config asks for them and they are not there yet. */
export async function makeData(
  settings: VideoActionsSettings,
  _resolveRun: unknown,
  say: (line: string) => void,
): Promise<void> {
  const world = worldOf(settings);
  if (world === null) return;
  if (tinyClips(world.root, world.options) === null) say(`making the tiny world's clips in ${world.root}`);
  await makeTinyClips(world.root, world.options);
}

/** Where a dataset lies that a config names by its path. */
export function placesOf(settings: VideoActionsSettings): (path: string) => string {
  const world = worldOf(settings);
  if (world === null) return (path) => path;
  const folder = tinyClips(world.root, world.options);
  return (path) => pathIn(folder, world.root, path);
}

function worldOf({ data: { dir, tiny } }: VideoActionsSettings): {
  readonly root: string;
  readonly options: ClipOptions;
} | null {
  if (tiny === null) return null;
  return { root: join(dir, tiny.folder), options: { seed: tiny.seed, sizes: tiny.counts, lists: tiny.lists } };
}
