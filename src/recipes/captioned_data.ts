/** The tiny world's captioned pictures, as a dataset of every recipe that learns from them. */
import { join } from 'node:path';
import type { TinyCaptionedSettings } from '../schema/data.js';
import { makeTinyCaptioned, tinyCaptioned, type CaptionedOptions } from '../tiny/world/captioned.js';
import { pathIn } from '../tiny/world/parts.js';

/** What of a config says which pictures it learns from. */
interface CaptionedSettings {
  readonly data: { readonly dir: string; readonly tiny: TinyCaptionedSettings | null };
}

/** Makes the pictures where a config asks for them and they are not there yet. */
export async function makeCaptioned(
  settings: CaptionedSettings,
  _resolveRun: unknown,
  say: (line: string) => void,
): Promise<void> {
  const world = worldOf(settings);
  if (world === null) return;
  if (tinyCaptioned(world.root, world.options) === null) {
    say(`making the tiny world's captioned pictures in ${world.root}`);
  }
  await makeTinyCaptioned(world.root, world.options);
}

/** Where a dataset lies that a config names by its path. */
export function placesOf(settings: CaptionedSettings): (path: string) => string {
  const world = worldOf(settings);
  if (world === null) return (path) => path;
  const folder = tinyCaptioned(world.root, world.options);
  return (path) => pathIn(folder, world.root, path);
}

function worldOf({ data: { dir, tiny } }: CaptionedSettings): {
  readonly root: string;
  readonly options: CaptionedOptions;
} | null {
  if (tiny === null) return null;
  return { root: join(dir, tiny.folder), options: { seed: tiny.seed, sizes: tiny.counts } };
}
