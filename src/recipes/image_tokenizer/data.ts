/** The tiny world's images, which the tokenizer learns from. */
import { join } from 'node:path';
import { makeTinyImages, tinyImages, type TinyImageOptions } from '../../tiny/world/dataset.js';
import { pathIn } from '../../tiny/world/parts.js';
import type { ImageTokenizerSettings } from './settings.js';

/** Makes them where a config asks for them and they are not there yet. */
export async function makeData(settings: ImageTokenizerSettings): Promise<void> {
  const world = worldOf(settings);
  if (world !== null) await makeTinyImages(world.root, world.options);
}

/** Where a dataset lies that a config names by its path. */
export function placesOf(settings: ImageTokenizerSettings): (path: string) => string {
  const world = worldOf(settings);
  if (world === null) return (path) => path;
  const folder = tinyImages(world.root, world.options);
  return (path) => pathIn(folder, world.root, path);
}

function worldOf({ data: { dir, tiny } }: ImageTokenizerSettings): {
  readonly root: string;
  readonly options: TinyImageOptions;
} | null {
  if (tiny === null) return null;
  const { folder, seed, grid, cell, counts } = tiny;
  const geometry = { columns: grid, rows: grid, cell };
  return { root: join(dir, folder), options: { seed, geometry, count: counts.images } };
}
