/** A look at rows of edits before a run, without opening their pictures: how many a row shows, and of which sizes as far as headers tell. */
import { closeSync, openSync, readSync, statSync } from 'node:fs';
import { dirname, extname, isAbsolute, resolve } from 'node:path';
import { DataError } from '../core/errors.js';
import { headerSize, type PictureSize } from './pictures.js';
import { rowFiles } from './rows.js';

/** A list of edits, and where its rows name what an edit begins from. */
export interface ShownList {
  readonly path: string;
  /** The folder that relative paths begin at; null: that of the list. */
  readonly media: string | null;
  readonly column: string;
}

/** Bytes of each file that are looked at, and rows: they represent the others. */
const MOST_BYTES = 2 ** 22;
const MOST_ROWS = 512;

/**
 * The pictures before the edit of every row of JSON lines that is looked at, each null where its header says no size. Rows with a picture that cannot
 * be read are left out, as is a list that cannot: what is wrong with them is told where they are opened.
 */
export function shownSizes({ path, media, column }: ShownList): readonly (readonly (PictureSize | null)[])[] {
  try {
    const folder = media ?? (statSync(path, { throwIfNoEntry: false })?.isDirectory() === true ? path : dirname(path));
    const known = new Map<string, readonly (PictureSize | null)[]>();
    const sizeOf = (named: string): readonly (PictureSize | null)[] => {
      const file = isAbsolute(named) ? named : resolve(folder, named);
      const sizes = known.get(file) ?? sizeIfRead(file);
      known.set(file, sizes);
      return sizes;
    };
    return rowFiles(path)
      .filter((file) => extname(file) === '.jsonl')
      .flatMap((file) => firstLines(file))
      .slice(0, MOST_ROWS)
      .flatMap((line) => {
        const named = namesIn(line, column);
        const sizes = named.flatMap(sizeOf);
        return named.length === 0 || sizes.length < named.length ? [] : [sizes];
      });
  } catch (error) {
    if (error instanceof DataError) return [];
    throw error;
  }
}

/** The lines at the beginning of a file, the last of which may be cut, and then is no row. */
function firstLines(path: string): string[] {
  const bytes = Buffer.alloc(Math.min(MOST_BYTES, statSync(path).size));
  const file = openSync(path, 'r');
  try {
    return bytes.toString('utf8', 0, readSync(file, bytes, 0, bytes.length, 0)).split('\n');
  } finally {
    closeSync(file);
  }
}

/** The pictures that a row names; none for a line that is no such row. */
function namesIn(line: string, column: string): string[] {
  let row: unknown;
  try {
    row = JSON.parse(line);
  } catch {
    return [];
  }
  const value = Object(row) as Readonly<Record<string, unknown>>;
  const named: readonly unknown[] = [value[column]].flat();
  return named.filter((one) => typeof one === 'string');
}

/** The size that a picture's header says, null for none; nothing for a file that cannot be read. */
function sizeIfRead(file: string): readonly (PictureSize | null)[] {
  try {
    return [headerSize(file)];
  } catch (error) {
    if (error instanceof DataError) return [];
    throw error;
  }
}
