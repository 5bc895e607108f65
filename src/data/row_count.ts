/** How many samples a dataset has, where its list tells at once: for forecasts, before anything is opened. */
import { closeSync, existsSync, openSync, readSync, statSync } from 'node:fs';
import { extname, join } from 'node:path';
import { DataError } from '../core/errors.js';
import { MEBIBYTE } from '../core/plain_file.js';
import { DATALIST_NAME, openDatalist } from './datalist.js';
import { readWhole } from './large_texts.js';
import { promptLines, rowFiles } from './rows.js';

/** A list of more bytes is not read: a forecast is made for every run of an experiment. */
const MOST_BYTES = 4 * MEBIBYTE;

/**
 * The samples of a dataset, `most` if it has as many or more. An upper bound: a row that cannot be used counts. Null where it is not known at once:
 * for a dataset that is not there, is no list of rows or samples, is in parquet, or has more than 4 MiB before its sample `most`.
 */
export function countRows(path: string, most: number): number | null {
  const list = existsSync(path) && statSync(path).isDirectory() ? join(path, 'list', DATALIST_NAME) : path;
  try {
    if (existsSync(list) && extname(list) === '.json') {
      return statSync(list).size > MOST_BYTES ? null : Math.min(most, openDatalist(list).ids.length);
    }
    let rows = 0;
    for (const file of rowFiles(path)) {
      const found = COUNTS[extname(file)]?.(file, most - rows) ?? null;
      if (found === null) return null;
      rows += found;
      if (rows >= most) return most;
    }
    return rows;
  } catch (error) {
    // What is wrong with the dataset is said where it is opened.
    if (error instanceof DataError) return null;
    throw error;
  }
}

const COUNTS: Readonly<Record<string, ((file: string, most: number) => number | null) | undefined>> = {
  '.jsonl': countLines,
  '.txt': (file) => (statSync(file).size > MOST_BYTES ? null : promptLines(readWhole(file), file).length),
};

/** The first lines that are not blank. */
function countLines(path: string, most: number): number | null {
  const file = openSync(path, 'r');
  try {
    const bytes = Buffer.alloc(MOST_BYTES);
    const read = readSync(file, bytes, 0, MOST_BYTES, 0);
    let lines = 0;
    let isBlank = true;
    for (let at = 0; at < read && lines < most; at++) {
      if (bytes[at] === 0x0a) isBlank = true;
      else if (isBlank && bytes[at] > 0x20) {
        isBlank = false;
        lines += 1;
      }
    }
    return lines < most && read === MOST_BYTES ? null : lines;
  } finally {
    closeSync(file);
  }
}
