/** The first and the last held-out evaluation in a file of metrics, found from its two ends: most of a long file is never read. */
import { withLog } from '../core/log/reader.js';
import { parseLine } from '../run/journal.js';
import { metricsOfLine, type MetricsLine } from '../run/metrics.js';

/** What a line with an evaluation has in it. */
const MARK = Buffer.from('"validation/');
/** So much is looked through from each end. */
const MOST_BYTES = 16 * 1024 * 1024;

/**
 * The lines of the first and the last evaluation, of which there may be one or none, as far as they lie within 16 megabytes of the file's ends. Raises
 * RunError where the file cannot be read or such a line is none.
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
