/** The tiny world's edits as pictures and words, as a dataset of every recipe that learns from them. */
import { join } from 'node:path';
import type { TinyPicturedSettings } from '../schema/seen_data.js';
import { pathIn } from '../tiny/world/parts.js';
import { makeTinyPictured, tinyPictured, type PicturedOptions } from '../tiny/world/pictured.js';

/** What of a config says which edits it learns from. */
interface PicturedData {
  readonly data: { readonly dir: string; readonly tiny: TinyPicturedSettings | null };
}

/** Makes the edits where a config asks for them and they are not there yet. */
export async function makePictured(
  settings: PicturedData,
  _resolveRun: unknown,
  say: (line: string) => void,
): Promise<void> {
  const world = worldOf(settings);
  if (world === null) return;
  if (tinyPictured(world.root, world.options) === null) say(`making the tiny world's pictured edits in ${world.root}`);
  await makeTinyPictured(world.root, world.options);
}

/** Where a dataset lies that a config names by its path. */
export function placesOf(settings: PicturedData): (path: string) => string {
  const world = worldOf(settings);
  if (world === null) return (path) => path;
  const folder = tinyPictured(world.root, world.options);
  return (path) => pathIn(folder, world.root, path);
}

function worldOf({ data: { dir, tiny } }: PicturedData): {
  readonly root: string;
  readonly options: PicturedOptions;
} | null {
  if (tiny === null) return null;
  const { folder, seed, grid, cell, set, names, counts } = tiny;
  const geometry = { columns: grid, rows: grid, cell };
  return { root: join(dir, folder), options: { seed, geometry, set, names, sizes: counts } };
}
