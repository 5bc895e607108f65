/**
 * Where the tiny world's data is stored. A part (images, edits, words, signs, captioned, clips, pictured) is named after what it was made from
 * (options, and for edits the tokenizer whose codes they use), built in a temporary folder and renamed to `<root>/<part>-<hash>`. It never changes
 * afterwards, so that no command can change what another one reads. A config names files as `<root>/s/train/…`; `findPart` finds the part, and
 * `pathIn` the path within it. Links below the root lead to the parts that were made first. Parts of editrl 0.1.0 are in the root itself, as
 * <root>/dataset.json records; they are used where they are.
 */
import { existsSync, lstatSync, mkdirSync, readFileSync, renameSync, rmSync, symlinkSync } from 'node:fs';
import { join, relative, resolve, sep } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import { z } from 'zod';
import { diskError, syncDirectory, writeFileAtomic } from '../../core/files.js';
import { sha256 } from '../../core/image.js';
import { stagingFolder, sweepStaging } from '../../core/staging.js';
import { EDIT_SETS } from './generate.js';

/** Raise this when the same options would give other files. */
const FORMAT = 2;

const recordSchema = z.object({ format: z.literal(FORMAT), images: z.unknown(), edits: z.unknown() });
type PartName = 'images' | 'edits' | 'words' | 'signs' | 'captioned' | 'clips' | 'pictured';

const PART_FOLDERS: Record<PartName, readonly string[]> = {
  images: ['images'],
  edits: EDIT_SETS,
  words: ['words'],
  signs: ['signs'],
  captioned: ['captioned'],
  clips: ['clips'],
  pictured: ['pictured'],
};

/** What the root itself contains; an unreadable record counts as nothing. */
function readRecord(root: string): Partial<Record<PartName, unknown>> {
  const path = join(root, 'dataset.json');
  const none = {};
  if (!existsSync(path)) return none;
  try {
    const parsed = recordSchema.safeParse(JSON.parse(readFileSync(path, 'utf8')));
    return parsed.success ? parsed.data : none;
  } catch (cause) {
    if (cause instanceof SyntaxError) return none;
    throw diskError(path, cause);
  }
}

/** A part of the tiny world, with what it is made from, in the form it has after a round trip through JSON. */
export interface Part {
  readonly name: PartName;
  readonly entry: unknown;
}

/** A value after a round trip through JSON. */
export function throughJson(value: unknown): unknown {
  return JSON.parse(JSON.stringify(value));
}

/** The folder of a part, whether it exists or not: the one that contains `images`, or `s` and `c`. */
function folderOf(root: string, { name, entry }: Part): string {
  // A link there leads to some part, which may be another one.
  const inRoot = PART_FOLDERS[name].every((folder) => isFolderItself(join(root, folder)));
  if (inRoot && isDeepStrictEqual(readRecord(root)[name], entry)) return root;
  return join(root, `${name}-${sha256(JSON.stringify([FORMAT, entry])).slice(0, 12)}`);
}

function isFolderItself(path: string): boolean {
  return lstatSync(path, { throwIfNoEntry: false })?.isDirectory() === true;
}

/** The folder of a part; null if it is not made yet. */
export function findPart(root: string, part: Part): string | null {
  const folder = folderOf(root, part);
  return existsSync(folder) ? folder : null;
}

/** Whether a path names something that is made below the root, in any part. */
export function isMade(root: string, path: string): boolean {
  const [first] = relative(resolve(root), resolve(path)).split(sep);
  return Object.values(PART_FOLDERS).some((folders) => folders.includes(first));
}

/** Resolves a path below the root to its location in a part; a path outside the root, or any path without a part, stays as it is. */
export function pathIn(folder: string | null, root: string, path: string): string {
  return folder === null || folder === root || !isMade(root, path) ? path : join(folder, relative(root, path));
}

const STAGING = '.making-';

/** Builds a part in a temporary folder and renames it into place; returns at once if it exists. */
export async function makePart(root: string, part: Part, build: (folder: string) => Promise<void>): Promise<void> {
  const place = folderOf(root, part);
  if (place === root) return;
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

/** Another process may have made the same part meanwhile: its files are the same, and may be in use. */
function publish(staging: string, place: string): void {
  try {
    renameSync(staging, place);
  } catch (cause) {
    if (!['ENOTEMPTY', 'EEXIST'].includes((cause as NodeJS.ErrnoException).code ?? '')) throw cause;
  }
}

/** Errors when a link exists already or cannot be created. */
const NO_LINK = ['EEXIST', 'EPERM', 'ENOSYS', 'ENOTSUP', 'EOPNOTSUPP', 'EACCES', 'EROFS'];

/** A link for people who look into the folder; the program finds parts by their own names. The file system may not support links. */
function link(path: string, target: string): void {
  try {
    symlinkSync(target, path);
  } catch (cause) {
    if (!NO_LINK.includes((cause as NodeJS.ErrnoException).code ?? '')) throw cause;
  }
}
