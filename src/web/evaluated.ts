/** Finds the first and the last held-out evaluation in a file of metrics, searching from both ends: most of a long file is never read. */
import { withLog } from '../core/log/reader.js';
import { parseLine } from '../run/journal.js';
import { metricsOfLine, type MetricsLine } from '../run/metrics.js';

/** A line with an evaluation contains this. */
const MARK = Buffer.from('"validation/');
/** How much is searched from each end. */
const MOST_BYTES = 16 * 1024 * 1024;

/**
 * The lines of the first and the last evaluation (there may be only one, or none), if they are within 16 megabytes of the file's ends. Raises
 * RunError when the file cannot be read or such a line is invalid.
 */
export function evaluatedLines(path: string): MetricsLine[] {
  return withLog(path, [], (log) => {
    const last = log.lastWith(MARK, MOST_BYTES);
    if (last === null) return [];
    const first = log.firstWith(MARK, MOST_BYTES) ?? last;
    const lines = first.start === last.start ? [last] : [first, last];
    return lines.map(({ text }) => metricsOfLine(parseLine(text, path, 0)));
  });
}
