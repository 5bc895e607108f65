/** Finds the first and the last held-out evaluation in a file of metrics, and some in between: most of a long file is never read. */
import { EditrlError } from '../core/errors.js';
import { withLog, type LogReader } from '../core/log/reader.js';
import { parseLine } from '../run/journal.js';
import { metricsOfLine, type MetricsLine } from '../run/metrics.js';

/** How many evaluations are returned at most, enough for a small curve. */
export const MOST_EVALUATIONS = 24;

/** A line with an evaluation contains this. */
const MARK = Buffer.from('"validation/');
/** How much is searched from each end. */
const MOST_BYTES = 16 * 1024 * 1024;
/** What lies between the ends is read as a whole up to this size; of more, so much is searched at each of several places. */
const WHOLE_BYTES = 1024 * 1024;
const PROBE_BYTES = 256 * 1024;
const NEWLINE = 10;

/**
 * The lines of the first and the last evaluation (there may be only one, or none), if they are within 16 megabytes of the file's ends, and of others in
 * between: all of them or, if there are many or the file is long, some that are about evenly spread. Raises RunError when the file cannot be read or the
 * first or last line is invalid; an invalid one in between is left out.
 */
export function evaluatedLines(path: string): MetricsLine[] {
  return withLog(path, [], (log) => {
    const last = log.lastWith(MARK, MOST_BYTES);
    if (last === null) return [];
    const first = log.firstWith(MARK, MOST_BYTES) ?? last;
    const decode = (text: string): MetricsLine => metricsOfLine(parseLine(text, path, 0));
    if (first.start === last.start) return [decode(last.text)];
    const between = linesBetween(log, first.end, last.start).flatMap((text) => ifValid(() => decode(text)));
    return [decode(first.text), ...between, decode(last.text)];
  });
}

/** The texts of evaluations in these bytes, which begin and end with whole lines. */
function linesBetween(log: LogReader, from: number, to: number): string[] {
  const most = MOST_EVALUATIONS - 2;
  if (to - from <= WHOLE_BYTES) return spread([...markedIn(log.bytes(from, to))], most);
  const found: string[] = [];
  let behind = from;
  for (let probe = 0; probe < most; probe++) {
    const line = log.firstWith(MARK, PROBE_BYTES, Math.max(behind, from + Math.floor((probe * (to - from)) / most)));
    if (line === null) continue;
    if (line.start >= to) break;
    found.push(line.text);
    behind = line.end;
  }
  return found;
}

function* markedIn(bytes: Buffer): Generator<string> {
  for (let at = bytes.indexOf(MARK); at >= 0;) {
    const end = bytes.indexOf(NEWLINE, at);
    if (end < 0) return;
    yield bytes.toString('utf8', bytes.lastIndexOf(NEWLINE, at) + 1, end);
    at = bytes.indexOf(MARK, end);
  }
}

/** At most `most` of the items, evenly spread over them. */
function spread<T>(items: readonly T[], most: number): T[] {
  if (items.length <= most) return [...items];
  return Array.from({ length: most }, (_, at) => items[Math.floor(((at + 0.5) * items.length) / most)]);
}

function ifValid<T>(read: () => T): T[] {
  try {
    return [read()];
  } catch (error) {
    if (error instanceof EditrlError) return [];
    throw error;
  }
}
