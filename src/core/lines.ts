/** Reading files of lines piece by piece, however large they are. */
import { closeSync, existsSync, openSync, readSync } from 'node:fs';
import { RunError } from './errors.js';

const CHUNK_BYTES = 4 * 1024 * 1024;
const NEWLINE = 10;

/** Told of a line and of its place in bytes. */
export type OnLine = (line: string, offset: number, length: number) => void;

/** Lines of more bytes are passed over, and never held in memory. */
export interface LongLines {
  readonly longest: number;
  /** Told of a line's bytes. */
  readonly onTooLong: (length: number) => void;
}

const anyLength: LongLines = { longest: Infinity, onTooLong: () => undefined };

/**
 * Calls back for every whole line of a file, in order, with its place in bytes; a torn last line is passed over. Returns the bytes of that
 * torn line: 0 where the file ends as it should, or is not there. Raises RunError where the file cannot be opened.
 */
export function scanLines(path: string, onLine: OnLine, long = anyLength): number {
  const file = openToRead(path);
  if (file === null) return 0;
  try {
    return scanOpenLines(file, onLine, long);
  } finally {
    closeSync(file);
  }
}

/** A descriptor of a file; null where it is not there. Raises RunError where it cannot be opened. */
export function openToRead(path: string): number | null {
  if (!existsSync(path)) return null;
  try {
    return openSync(path, 'r');
  } catch (cause) {
    throw new RunError('cannot read the file', { where: path, cause });
  }
}

/** As `scanLines`, of an open file, whatever its path leads to meanwhile. */
export function scanOpenLines(file: number, onLine: OnLine, { longest, onTooLong }: LongLines = anyLength): number {
  let rest: Buffer = Buffer.alloc(0);
  let restOffset = 0;
  let position = 0;
  /** Bytes of a line that is too long, so far. */
  let passed = 0;
  const chunk = Buffer.alloc(CHUNK_BYTES);
  const next = (): number => readSync(file, chunk, 0, chunk.length, position);
  for (let read = next(); read > 0; read = next()) {
    position += read;
    const bytes = Buffer.concat([rest, chunk.subarray(0, read)]);
    let start = 0;
    for (let end = bytes.indexOf(NEWLINE); end >= 0; end = bytes.indexOf(NEWLINE, start)) {
      const length = passed + end - start;
      if (length > longest) onTooLong(length);
      else onLine(bytes.toString('utf8', start, end), restOffset + start, length);
      passed = 0;
      start = end + 1;
    }
    restOffset += start;
    rest = bytes.subarray(start);
    if (passed + rest.length <= longest) continue;
    passed += rest.length;
    restOffset += rest.length;
    rest = Buffer.alloc(0);
  }
  return passed + rest.length;
}
