/** Reading files of lines piece by piece, however large they are. */
import { closeSync, readSync } from 'node:fs';
import { RunError } from './errors.js';
import { MEBIBYTE, openPlain } from './plain_file.js';

const CHUNK_BYTES = 4 * 1024 * 1024;
const NEWLINE = 10;

/** Told of a line and of its place in bytes. */
export type OnLine = (line: string, offset: number, length: number) => void;

/** Lines of more bytes are passed over, and never held in memory. */
export interface LongLines {
  readonly longest: number;
  /** Told of a line's bytes. */
  readonly onTooLong: (length: number) => void;
  /** Called as soon as a line turns out to be too long, before its end is found. */
  readonly onBegun?: () => void;
}

/** No line that this program writes is as long: a file without line ends is read no further. */
export const LONGEST_LINE_BYTES = 64 * MEBIBYTE;

/** Raises RunError for a line that is too long. */
export function refuseLongLines(path: string): LongLines {
  const refuse = (): never => {
    throw lineTooLong(path);
  };
  return { longest: LONGEST_LINE_BYTES, onTooLong: refuse, onBegun: refuse };
}

export function lineTooLong(path: string): RunError {
  return new RunError(`a line has more than ${LONGEST_LINE_BYTES / MEBIBYTE} MiB, which no line of such a file has`, {
    where: path,
    next: 'See who put it there; move it away, or restore the file from a copy.',
  });
}

/**
 * Calls back for every whole line of a file, in order, with its place in bytes; a torn last line is passed over. Returns the bytes of that
 * torn line: 0 where the file ends as it should, or is not there. Raises RunError where the file cannot be opened, and for a line of more than
 * 64 MiB unless `long` takes it.
 */
export function scanLines(path: string, onLine: OnLine, long = refuseLongLines(path)): number {
  const file = openPlain(path);
  if (file === null) return 0;
  try {
    return scanOpenLines(file, onLine, long);
  } finally {
    closeSync(file);
  }
}

/** As `scanLines`, of an open file, whatever its path leads to meanwhile. */
export function scanOpenLines(file: number, onLine: OnLine, { longest, onTooLong, onBegun }: LongLines): number {
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
    if (passed === 0) onBegun?.();
    passed += rest.length;
    restOffset += rest.length;
    rest = Buffer.alloc(0);
  }
  return passed + rest.length;
}
