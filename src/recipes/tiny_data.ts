/** A dataset of the tiny world by what a recipe's settings say of it: made where it is missing, and found by the paths that a config writes. */
import { join } from 'node:path';
import { pathIn } from '../tiny/world/parts.js';

/** What of a config says where a dataset of the tiny world lies, and what it is made from. */
export interface TinyData<T> {
  readonly data: { readonly dir: string; readonly tiny: T | null };
}

/** One of the tiny world's datasets; `T` is how a config describes it, `O` what it is made from. */
export interface TinyDatasetKind<T, O> {
  /** What it consists of, in the plural. */
  readonly things: string;
  readonly optionsOf: (tiny: T) => O;
  /** The folder that holds it; null where it was not made yet. */
  readonly find: (root: string, options: O) => string | null;
  /** Makes it where it is missing. */
  readonly make: (root: string, options: O) => Promise<unknown>;
}

export interface TinyDataset<T> {
  /** Makes it where a config asks for it and it is not there yet. */
  readonly make: (settings: TinyData<T>, resolveRun: unknown, say: (line: string) => void) => Promise<void>;
  /** Where a dataset lies that a config names by its path. */
  readonly placesOf: (settings: TinyData<T>) => (path: string) => string;
}

export function tinyDataset<T extends { readonly folder: string }, O>({
  things,
  optionsOf,
  find,
  make,
}: TinyDatasetKind<T, O>): TinyDataset<T> {
  const worldOf = ({ data: { dir, tiny } }: TinyData<T>): { readonly root: string; readonly options: O } | null =>
    tiny === null ? null : { root: join(dir, tiny.folder), options: optionsOf(tiny) };
  return {
    make: async (settings, _, say) => {
      const world = worldOf(settings);
      if (world === null) return;
      if (find(world.root, world.options) === null) say(`making the tiny world's ${things} in ${world.root}`);
      await make(world.root, world.options);
    },
    placesOf: (settings) => {
      const world = worldOf(settings);
      if (world === null) return (path) => path;
      const folder = find(world.root, world.options);
      return (path) => pathIn(folder, world.root, path);
    },
  };
}
