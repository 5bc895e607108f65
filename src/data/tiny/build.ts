/**
 * Access to a dataset of the tiny world by a recipe's settings: makes it if it is missing, and resolves the paths that a config uses.
 *
 * A part (images, edits, words, signs, captioned, clips, pictured) is named after its inputs (options, and for edits the tokenizer whose
 * codes they use), built in a temporary folder and renamed to `<root>/<part>-<hash>`. It never changes afterwards, so that no command can change what
 * another one reads. A config names files as `<root>/s/train/…`. Links below the root lead to the parts that were made first.
 */
import { mkdtempSync, rmSync, existsSync, mkdirSync, renameSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, relative, resolve, sep } from 'node:path';
import { diskError, stagingFolder, sweepStaging, syncDirectory, writeFileAtomic } from '../../core/files.js';
import { sha256 } from '../../core/images/image.js';

/** The folder of a run's tiny world data. Null if the user provides the data. */
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

/** The part of a config with the folder and the options of a dataset of the tiny world. */
export interface TinyData<T> {
  readonly data: { readonly dir: string; readonly tiny: T | null };
}

/** One of the tiny world's datasets. `T` is its settings in a config, `O` its options. */
interface TinyDatasetKind<T, O> extends Pick<Part, 'name'> {
  /** Its contents, in the plural. */
  readonly things: string;
  readonly optionsOf: (tiny: T) => O;
  /** The name of its folder: everything that determines its files. */
  readonly entryOf: (options: O) => unknown;
  /** Raises ConfigError or DataError for options that have no dataset. Absent: every option has one. */
  readonly check?: (options: O) => void;
  /** Writes its files below a folder. Raises RunError on a disk error. */
  readonly write: (folder: string, options: O) => Promise<void>;
}

export interface TinyDataset<T, O = never> {
  /** Creates it if a config requests it and it does not exist yet. */
  readonly make: (settings: TinyData<T>, resolveRun: unknown, say: (line: string) => void) => Promise<void>;
  /** Resolves the path by which a config names a dataset. */
  readonly placesOf: (settings: TinyData<T>) => (path: string) => string;
  /**
   * Reads datasets whether they exist or not. If not, the first `count` samples of each split are drawn into a
   * temporary folder, which is removed when `read` has ended.
   */
  readonly sampled: <S extends PlacedRows>(settings: TinyData<T>, count: number, read: ReadSets<S>) => Promise<S[]>;
  /** The dataset's folder below a root. Null if it does not exist yet. */
  readonly find: (root: string, options: O) => string | null;
  /** Creates the dataset below a root. Does nothing if it exists. Raises the errors of `check` and `write`. */
  readonly makeIn: (root: string, options: O) => Promise<void>;
}

/** Caps the sample counts of all splits at `most`. */
function atMost<C extends object>(counts: C, most: number): C {
  const few = Object.entries(counts).map(([split, count]) => [split, Math.min(Number(count), most)]);
  return Object.fromEntries(few) as C;
}

/** Reads rows of datasets, each from the place that its path resolves to. */
type ReadSets<S extends PlacedRows> = (place: (path: string) => string) => Promise<S[]>;

/** Rows that record their location. */
interface PlacedRows {
  readonly rows: readonly { readonly place: string }[];
}

/**
 * Calls `read` with the folder of each dataset in a temporary root, which `make` fills and whose part it returns. The
 * paths in the rows are their later ones below `root`.
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
  const find = (root: string, options: O): string | null => findPart(root, { name, entry: entryOf(options) });
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
      if (find(world.root, world.options) === null) say(`creating the tiny world's ${things} in ${world.root}`);
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

/** Raise this when the same options would produce other files. */
const FORMAT = 2;

type PartName = 'images' | 'edits' | 'words' | 'signs' | 'captioned' | 'clips' | 'pictured';

const PART_FOLDERS: Record<PartName, readonly string[]> = {
  images: ['images'],
  edits: ['s', 'c'],
  words: ['words'],
  signs: ['signs'],
  captioned: ['captioned'],
  clips: ['clips'],
  pictured: ['pictured'],
};

/** A part of the tiny world, with its options after a round trip through JSON. */
interface Part {
  readonly name: PartName;
  readonly entry: unknown;
}

/** A value after a round trip through JSON. */
export function throughJson(value: unknown): unknown {
  return JSON.parse(JSON.stringify(value));
}

/** The folder of a part, whether it exists or not: the one that contains `images`, or `s` and `c`. */
function folderOf(root: string, { name, entry }: Part): string {
  return join(root, `${name}-${sha256(JSON.stringify([FORMAT, entry])).slice(0, 12)}`);
}

/** The folder of a part. Null if it does not exist yet. */
function findPart(root: string, part: Part): string | null {
  const folder = folderOf(root, part);
  return existsSync(folder) ? folder : null;
}

/** Whether a path names a dataset below the root, in any part. */
function isMade(root: string, path: string): boolean {
  const [first] = relative(resolve(root), resolve(path)).split(sep);
  return Object.values(PART_FOLDERS).some((folders) => folders.includes(first));
}

/**
 * Resolves a path below the root to its location in a part. A path outside the root, or any path without a part, stays
 * unchanged.
 */
export function pathIn(folder: string | null, root: string, path: string): string {
  return folder === null || !isMade(root, path) ? path : join(folder, relative(root, path));
}

const STAGING = '.making-';

/** Builds a part in a temporary folder and renames it into place. Returns at once if it exists. */
async function makePart(root: string, part: Part, build: (folder: string) => Promise<void>): Promise<void> {
  const place = folderOf(root, part);
  const staging = stagingFolder(root, STAGING);
  try {
    mkdirSync(root, { recursive: true });
    if (!existsSync(place)) {
      sweepStaging(root, STAGING);
      mkdirSync(staging);
      await build(staging);
      const made = { format: FORMAT, part: part.name, made_from: part.entry };
      writeFileAtomic(join(staging, 'made.json'), `${JSON.stringify(made, null, 2)}\n`);
      publish(staging, place);
      syncDirectory(root);
    }
    for (const folder of PART_FOLDERS[part.name]) link(join(root, folder), relative(root, join(place, folder)));
  } catch (cause) {
    if (cause instanceof Error && 'syscall' in cause) throw diskError(root, cause);
    throw cause;
  } finally {
    rmSync(staging, { recursive: true, force: true });
  }
}

/** Another process may have created the same part meanwhile: its files are the same, and may be in use. */
function publish(staging: string, place: string): void {
  try {
    renameSync(staging, place);
  } catch (cause) {
    if (!['ENOTEMPTY', 'EEXIST'].includes((cause as NodeJS.ErrnoException).code ?? '')) throw cause;
  }
}

/** Error codes for a link that already exists or cannot be created. */
const NO_LINK = ['EEXIST', 'EPERM', 'ENOSYS', 'ENOTSUP', 'EOPNOTSUPP', 'EACCES', 'EROFS'];

/**
 * A link for people who browse the folder. The program finds parts by their own names. The file system may not support
 * links.
 */
function link(path: string, target: string): void {
  try {
    symlinkSync(target, path);
  } catch (cause) {
    if (!NO_LINK.includes((cause as NodeJS.ErrnoException).code ?? '')) throw cause;
  }
}
