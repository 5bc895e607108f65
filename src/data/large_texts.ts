/** Large texts, read without making one string of them: a string has no more than 2^29 characters. */
import { closeSync, openSync, readFileSync, readSync } from 'node:fs';
import { DataError } from '../core/errors.js';

const NEWLINE = 0x0a;

/** The lines of UTF-8 bytes, without their ends; after a last line break there is an empty one. */
export function* linesOf(bytes: Uint8Array): Generator<string> {
  const decoder = new TextDecoder();
  for (let start = 0; start <= bytes.length;) {
    const found = bytes.indexOf(NEWLINE, start);
    const end = found < 0 ? bytes.length : found;
    yield decoder.decode(bytes.subarray(start, end));
    start = end + 1;
  }
}

/** All bytes of a file of a dataset. Raises DataError for one that is larger than Node reads at once. */
export function readWhole(path: string): Uint8Array {
  try {
    return readFileSync(path);
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code !== 'ERR_FS_FILE_TOO_LARGE') throw cause;
    throw new DataError('found a file of more than 2 GiB; allowed: smaller ones', {
      where: path,
      next: 'Split it: a dataset may be a folder of files.',
      cause,
    });
  }
}

/** The first bytes of a file as text; a character that is cut in the middle becomes U+FFFD. */
export function beginningOf(path: string, bytes: number): string {
  const file = openSync(path, 'r');
  try {
    const piece = Buffer.alloc(bytes);
    return new TextDecoder().decode(piece.subarray(0, readSync(file, piece, 0, bytes, 0)));
  } finally {
    closeSync(file);
  }
}
