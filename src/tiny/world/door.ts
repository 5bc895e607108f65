/** A dataset of the tiny world by what a recipe's settings say of it: made where it is missing, and found by the paths that a config writes. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, relative, resolve } from 'node:path';
import { foundPart, isMade, makePart, pathIn, type Part } from './parts.js';

/** The folder in which a run's data of the tiny world is made; null where the data is brought along. */
function tinyRoot({
  data,
}: {
  readonly data?: { readonly dir: string; readonly tiny?: { readonly folder: string } | null };
}): string | null {
  const { dir, tiny = null } = data ?? { dir: '' };
  return tiny === null ? null : join(dir, tiny.folder);
}

/** Whether a path of a config names data that the run makes itself. */
export function isTiny(settings: Parameters<typeof tinyRoot>[0], path: string): boolean {
  const root = tinyRoot(settings);
  return root !== null && isMade(root, path);
}

/** The part of a config that says where a dataset of the tiny world is stored and what it is made from. */
export interface TinyData<T> {
  readonly data: { readonly dir: string; readonly tiny: T | null };
}

/** One of the tiny world's datasets; `T` is how a config describes it, `O` what it is made from. */
interface TinyDatasetKind<T, O> extends Pick<Part, 'name'> {
  /** What it consists of, in the plural. */
  readonly things: string;
  readonly optionsOf: (tiny: T) => O;
  /** What names its folder: all that its files follow from. */
  readonly entryOf: (options: O) => unknown;
  /** Raises ConfigError or DataError for options of which there is no dataset; absent: there is one of any. */
  readonly check?: (options: O) => void;
  /** Writes its files below a folder. Raises RunError when the disk refuses. */
  readonly write: (folder: string, options: O) => Promise<void>;
}

export interface TinyDataset<T, O = never> {
  /** Makes it where a config asks for it and it is not there yet. */
  readonly make: (settings: TinyData<T>, resolveRun: unknown, say: (line: string) => void) => Promise<void>;
  /** Where a dataset lies that a config names by its path. */
  readonly placesOf: (settings: TinyData<T>) => (path: string) => string;
  /**
   * Reads datasets whether they are made or not: of those that are not, the first `count` samples of each split are drawn into a temporary
   * folder, which is removed when `read` has ended.
   */
  readonly sampled: <S extends PlacedRows>(settings: TinyData<T>, count: number, read: ReadSets<S>) => Promise<S[]>;
  /** The folder below a root that holds it; null where it was not made yet. */
  readonly find: (root: string, options: O) => string | null;
  /** Makes it below a root; does nothing where it is there already. Raises as `check` and `write`. */
  readonly makeIn: (root: string, options: O) => Promise<void>;
}

/** Counts of samples by split, none above `most`. */
function atMost<C extends object>(counts: C, most: number): C {
  const few = Object.entries(counts).map(([split, count]) => [split, Math.min(Number(count), most)]);
  return Object.fromEntries(few) as C;
}

/** Reads rows of datasets, each from the place that its path stands for. */
type ReadSets<S extends PlacedRows> = (place: (path: string) => string) => Promise<S[]>;

/** Rows that say where they stand. */
interface PlacedRows {
  readonly rows: readonly { readonly place: string }[];
}

/**
 * Calls `read` with the place of each dataset below `root`, in a temporary root that `make` fills and returns the part of. Rows say where
 * they will stand below `root`.
 */
async function inTemporaryRoot<S extends PlacedRows>(
  root: string,
  make: (temporary: string) => Promise<string | null>,
  read: ReadSets<S>,
): Promise<S[]> {
  const temporary = mkdtempSync(join(tmpdir(), 'editrl-rows-'));
  try {
    const folder = await make(temporary);
    const sets = await read((path) =>
      folder !== null && isMade(root, path) ? join(folder, relative(resolve(root), resolve(path))) : path,
    );
    const placed = <R extends { readonly place: string }>(row: R): R => {
      return { ...row, place: row.place.replace(folder ?? temporary, root) };
    };
    return sets.map((set) => ({ ...set, rows: set.rows.map(placed) }));
  } finally {
    rmSync(temporary, { recursive: true, force: true });
  }
}

export function tinyDataset<T extends { readonly folder: string; readonly counts: object }, O>({
  things,
  name,
  optionsOf,
  entryOf,
  check,
  write,
}: TinyDatasetKind<T, O>): TinyDataset<T, O> {
  const find = (root: string, options: O): string | null => foundPart(root, { name, entry: entryOf(options) });
  const makeIn = async (root: string, options: O): Promise<void> => {
    check?.(options);
    await makePart(root, { name, entry: entryOf(options) }, (folder) => write(folder, options));
  };
  const worldOf = ({ data: { dir, tiny } }: TinyData<T>): { readonly root: string; readonly options: O } | null =>
    tiny === null ? null : { root: join(dir, tiny.folder), options: optionsOf(tiny) };
  const placesOf = (settings: TinyData<T>): ((path: string) => string) => {
    const world = worldOf(settings);
    if (world === null) return (path) => path;
    const folder = find(world.root, world.options);
    return (path) => pathIn(folder, world.root, path);
  };
  return {
    find,
    makeIn,
    make: async (settings, _, say) => {
      const world = worldOf(settings);
      if (world === null) return;
      if (find(world.root, world.options) === null) say(`making the tiny world's ${things} in ${world.root}`);
      await makeIn(world.root, world.options);
    },
    placesOf,
    sampled: (settings, count, read) => {
      const world = worldOf(settings);
      const { tiny } = settings.data;
      if (world === null || tiny === null || find(world.root, world.options) !== null) return read(placesOf(settings));
      const few = optionsOf({ ...tiny, counts: atMost(tiny.counts, count) });
      const drawn = async (root: string): Promise<string | null> => {
        await makeIn(root, few);
        return find(root, few);
      };
      return inTemporaryRoot(world.root, drawn, read);
    },
  };
}
