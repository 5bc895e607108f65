/** Reads large texts in pieces, because a string has at most 2^29 characters. */
import { closeSync, openSync, readFileSync, readSync } from 'node:fs';
import { DataError } from '../core/errors.js';
import { parseJson, refuseLfsPointer, textOf } from '../core/text.js';

const NEWLINE = 0x0a;

/** The undecoded lines of some bytes, without their line breaks. The line after a final line break is empty. */
export function* linesOf(bytes: Uint8Array): Generator<Uint8Array> {
  for (let start = 0; start <= bytes.length;) {
    const found = bytes.indexOf(NEWLINE, start);
    const end = found < 0 ? bytes.length : found;
    yield bytes.subarray(start, end);
    start = end + 1;
  }
}

/** The value of a line of JSON. Undefined for a blank one. Raises the DataErrors of `textOf` and `parseJson`. */
export function jsonLine(bytes: Uint8Array, file: string, line: number): unknown {
  const text = textOf(bytes, file, { line });
  return text.trim() === '' ? undefined : parseJson(text, `${file}:${line}`);
}

/**
 * All bytes of a dataset's file. Raises DataError if it is larger than Node reads at once, and for a Git LFS pointer.
 */
export function readWhole(path: string): Uint8Array {
  try {
    const bytes = readFileSync(path);
    refuseLfsPointer(bytes, path);
    return bytes;
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code !== 'ERR_FS_FILE_TOO_LARGE') throw cause;
    throw new DataError('found a file of more than 2 GiB; allowed: smaller ones', {
      where: path,
      next: 'Split it: a dataset may be a folder of files.',
      cause,
    });
  }
}

/** The first bytes of a file as text. A character cut at the end becomes U+FFFD. */
export function beginningOf(path: string, bytes: number): string {
  const file = openSync(path, 'r');
  try {
    const piece = Buffer.alloc(bytes);
    return new TextDecoder().decode(piece.subarray(0, readSync(file, piece, 0, bytes, 0)));
  } finally {
    closeSync(file);
  }
}
