/** `metrics.jsonl`: one line per iteration, flat names, plain numbers. */
import { InternalError } from '../core/errors.js';
import { decodeNumber, Journal, readLines, type JournalDisk } from './journal.js';
import type { RunPaths } from './paths.js';

/** Metrics of one iteration by name, such as `reward/mean`. */
export type Metrics = Readonly<Record<string, number>>;

export interface MetricsLine {
  readonly iteration: number;
  readonly metrics: Metrics;
}

/** The name under which a line says how many of its numbers were not finite. */
export const NON_FINITE = 'metrics/non_finite';

/** Appends the metrics of each iteration. Numbers that are not finite are kept as text and counted, never dropped. */
export class MetricsJournal {
  readonly #journal: Journal;

  constructor(paths: RunPaths, disk?: JournalDisk) {
    this.#journal = new Journal(paths.metrics, disk);
  }

  append(iteration: number, metrics: Metrics): void {
    if ('iteration' in metrics) throw new InternalError('`iteration` is not a metric');
    const nonFinite = Object.values(metrics).filter((value) => !Number.isFinite(value)).length;
    this.#journal.append({ iteration, ...metrics, ...(nonFinite > 0 ? { [NON_FINITE]: nonFinite } : {}) });
  }

  sync(): void {
    this.#journal.sync();
  }

  close(): void {
    this.#journal.close();
  }
}

/** Reads a run's metrics, oldest first; empty when there are none yet. Raises RunError on a line that is none. */
export function readMetrics(paths: RunPaths): MetricsLine[] {
  return readLines(paths.metrics).map((line) => {
    const metrics: Record<string, number> = {};
    for (const [name, value] of Object.entries(line)) {
      const number = decodeNumber(value);
      if (name !== 'iteration' && number !== null) metrics[name] = number;
    }
    return { iteration: Number(line['iteration']), metrics };
  });
}
