/** The tiny world of signs, as this recipe's dataset. */
import { join } from 'node:path';
import { pathIn } from '../../tiny/world/parts.js';
import { makeTinySigns, signWorld, tinySigns, type SignWorld } from '../../tiny/world/sign_scenes.js';
import type { IpAdapterSettings } from './settings.js';

/** Makes the signs where a config asks for them and they are not there yet. */
export async function makeData(
  settings: IpAdapterSettings,
  _resolveRun: unknown,
  say: (line: string) => void,
): Promise<void> {
  const world = worldOf(settings);
  if (world === null) return;
  if (tinySigns(world.root, world.options) === null) say(`making the tiny world's signs in ${world.root}`);
  await makeTinySigns(world.root, world.options);
}

/** Where a dataset lies that a config names by its path. */
export function placesOf(settings: IpAdapterSettings): (path: string) => string {
  const world = worldOf(settings);
  if (world === null) return (path) => path;
  const folder = tinySigns(world.root, world.options);
  return (path) => pathIn(folder, world.root, path);
}

function worldOf({ data: { dir, tiny } }: IpAdapterSettings): {
  readonly root: string;
  readonly options: SignWorld;
} | null {
  if (tiny === null) return null;
  return { root: join(dir, tiny.folder), options: signWorld(tiny) };
}
