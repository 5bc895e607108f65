/** The tiny world of signs, as a dataset of every recipe that learns from them. */
import { join } from 'node:path';
import type { TinySignSettings } from '../schema/data.js';
import { pathIn } from '../tiny/world/parts.js';
import { makeTinySigns, signWorld, tinySigns, type SignWorld } from '../tiny/world/sign_scenes.js';

/** What of a config says which signs it learns from. */
interface SignData {
  readonly data: { readonly dir: string; readonly tiny: TinySignSettings | null };
}

/** Makes the signs where a config asks for them and they are not there yet. */
export async function makeSigns(settings: SignData, _resolveRun: unknown, say: (line: string) => void): Promise<void> {
  const world = worldOf(settings);
  if (world === null) return;
  if (tinySigns(world.root, world.options) === null) say(`making the tiny world's signs in ${world.root}`);
  await makeTinySigns(world.root, world.options);
}

/** Where a dataset lies that a config names by its path. */
export function placesOf(settings: SignData): (path: string) => string {
  const world = worldOf(settings);
  if (world === null) return (path) => path;
  const folder = tinySigns(world.root, world.options);
  return (path) => pathIn(folder, world.root, path);
}

function worldOf({ data: { dir, tiny } }: SignData): { readonly root: string; readonly options: SignWorld } | null {
  if (tiny === null) return null;
  return { root: join(dir, tiny.folder), options: signWorld(tiny) };
}
