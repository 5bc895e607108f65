/** A look at rows of edits before a run, without opening their pictures: how many a row shows, and of which sizes as far as headers tell. */
import { closeSync, openSync, readSync, statSync } from 'node:fs';
import { dirname, extname, isAbsolute, resolve } from 'node:path';
import { DataError } from '../core/errors.js';
import { headerSize } from './inpainting_look.js';
import type { PictureSize } from './pictures.js';
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
 * The pictures before the edit of every row of JSON lines that is looked at, each null where its header says no size. Empty where nothing can be
 * read: what is wrong with a list is told where it is opened.
 */
export function shownSizes({ path, media, column }: ShownList): readonly (readonly (PictureSize | null)[])[] {
  try {
    const folder = media ?? (statSync(path, { throwIfNoEntry: false })?.isDirectory() === true ? path : dirname(path));
    const known = new Map<string, PictureSize | null>();
    const sizeOf = (named: string): PictureSize | null => {
      const file = isAbsolute(named) ? named : resolve(folder, named);
      if (!known.has(file)) known.set(file, sizeOrNull(file));
      return known.get(file) ?? null;
    };
    return rowFiles(path)
      .filter((file) => extname(file) === '.jsonl')
      .flatMap((file) => firstLines(file))
      .slice(0, MOST_ROWS)
      .flatMap((line) => {
        const named = namesIn(line, column);
        return named.length === 0 ? [] : [named.map(sizeOf)];
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

function sizeOrNull(file: string): PictureSize | null {
  try {
    return headerSize(file);
  } catch (error) {
    if (error instanceof DataError) return null;
    throw error;
  }
}
