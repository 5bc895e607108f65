/** The first and the last held-out evaluation in a file of metrics, found from its two ends: most of a long file is never read. */
import { closeSync, fstatSync, readSync } from 'node:fs';
import { LONGEST_LINE_BYTES } from '../core/lines.js';
import { openPlain } from '../core/plain_file.js';
import { parseLine } from '../run/journal.js';
import { metricsOfLine, type MetricsLine } from '../run/metrics.js';

const NEWLINE = 10;
/** What a line with an evaluation has in it. */
const MARK = Buffer.from('"validation/');
const CHUNK_BYTES = 256 * 1024;
/** So much is looked through from each end. */
const MOST_BYTES = 16 * 1024 * 1024;

/**
 * The lines of the first and the last evaluation, of which there may be one or none, as far as they lie within 16 megabytes of the file's ends. Raises
 * RunError where the file cannot be read or such a line is none.
 */
export function evaluatedLines(path: string): MetricsLine[] {
  const file = openPlain(path);
  if (file === null) return [];
  try {
    const { size } = fstatSync(file);
    const last = findLast(file, size);
    if (last === null) return [];
    const first = findFirst(file, last.start) ?? last;
    const lines = first.start === last.start ? [last] : [first, last];
    return lines.map(({ text }) => metricsOfLine(parseLine(text, path, 0)));
  } finally {
    closeSync(file);
  }
}

interface FoundLine {
  readonly start: number;
  readonly text: string;
}

function findFirst(file: number, before: number): FoundLine | null {
  const end = Math.min(before, MOST_BYTES);
  for (let from = 0; from < end;) {
    const bytes = read(file, from, Math.min(end, from + CHUNK_BYTES));
    const at = bytes.indexOf(MARK);
    if (at >= 0) return lineAround(file, from + at, before);
    // A mark may lie across two chunks.
    if (bytes.length <= MARK.length) return null;
    from += bytes.length - MARK.length;
  }
  return null;
}

/** A last line without its end is still being written, and passed over. */
function findLast(file: number, size: number): FoundLine | null {
  const least = Math.max(0, size - MOST_BYTES);
  for (let to = size; to > least;) {
    const from = Math.max(least, to - CHUNK_BYTES);
    const bytes = read(file, from, to);
    for (let at = bytes.lastIndexOf(MARK); at >= 0;) {
      const line = lineAround(file, from + at, size);
      if (line !== null) return line;
      const previous = bytes.lastIndexOf(NEWLINE, at);
      at = previous <= 0 ? -1 : bytes.lastIndexOf(MARK, previous);
    }
    if (from === least) return null;
    to = from + MARK.length;
  }
  return null;
}

/** The whole line around a byte; null where it has no end before `limit`, and where it is longer than lines are. */
function lineAround(file: number, at: number, limit: number): FoundLine | null {
  let start = at;
  for (let found = false; !found && start > 0;) {
    if (at - start > LONGEST_LINE_BYTES) return null;
    const from = Math.max(0, start - CHUNK_BYTES);
    const newline = read(file, from, start).lastIndexOf(NEWLINE);
    found = newline >= 0;
    start = found ? from + newline + 1 : from;
  }
  for (let from = at; from < Math.min(limit, start + LONGEST_LINE_BYTES); from += CHUNK_BYTES) {
    const newline = read(file, from, Math.min(limit, from + CHUNK_BYTES)).indexOf(NEWLINE);
    if (newline >= 0) return { start, text: read(file, start, from + newline).toString('utf8') };
  }
  return null;
}

function read(file: number, from: number, to: number): Buffer {
  const bytes = Buffer.alloc(to - from);
  return bytes.subarray(0, readSync(file, bytes, 0, bytes.length, from));
}
