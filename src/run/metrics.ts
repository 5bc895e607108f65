/** `metrics.jsonl`: one line per iteration, flat names, plain numbers. */
import { InternalError } from '../core/errors.js';
import { rewriteLines, type LogDisk } from '../core/log/writer.js';
import { decodeNumber, encodeLine, Journal, parseLine, readLines } from './journal.js';
import type { RunPaths } from './paths.js';

/** Metrics of one iteration by name, such as `reward/mean`. */
export type Metrics = Readonly<Record<string, number>>;

export interface MetricsLine {
  readonly iteration: number;
  readonly metrics: Metrics;
}

/** The metric that counts how many of a line's numbers were not finite. */
export const NON_FINITE = 'metrics/non_finite';

/** The metrics for how much was learnt from per second. */
export const SPEEDS = ['tokens/s', 'steps/s'] as const;

export interface Speed {
  readonly unit: (typeof SPEEDS)[number];
  readonly value: number;
}

/** The speed among the given metrics; null if nothing was counted. */
export function speedOf(metrics: Metrics): Speed | null {
  const unit = SPEEDS.find((one) => Object.hasOwn(metrics, one));
  return unit === undefined ? null : { unit, value: metrics[unit] };
}

/**
 * What the iterations learnt from over their seconds: a mean of their speeds would count a quick one as much as a slow one. Iterations without a
 * speed or with nothing learnt from are left out; null if none is left.
 */
export function speedOver(lines: readonly MetricsLine[]): Speed | null {
  for (const unit of SPEEDS) {
    let count = 0;
    let seconds = 0;
    for (const { metrics } of lines) {
      const [speed, time] = [metrics[unit] as number | undefined, metrics['time/total'] as number | undefined];
      if (speed === undefined || time === undefined || !(speed > 0) || !Number.isFinite(speed * time)) continue;
      // A speed is recorded as the count over the seconds of its whole iteration.
      count += speed * time;
      seconds += time;
    }
    if (seconds > 0) return { unit, value: count / seconds };
  }
  return null;
}

/** Appends the metrics of each iteration. Numbers that are not finite are kept as text and counted, never dropped. */
export class MetricsJournal {
  #journal: Journal;

  constructor(
    paths: RunPaths,
    private readonly disk?: LogDisk,
  ) {
    this.#journal = new Journal(paths.metrics, disk);
  }

  append(iteration: number, metrics: Metrics): void {
    this.#journal.append(lineOf(iteration, metrics));
  }

  /** Replaces an iteration's line atomically; appends it if there is none. */
  replace(iteration: number, metrics: Metrics): void {
    const { path } = this.#journal;
    const { line } = encodeLine(lineOf(iteration, metrics));
    let found = false;
    this.#journal.close();
    rewriteLines(path, (earlier, number) => {
      const same = parseLine(earlier, path, number)['iteration'] === iteration;
      found ||= same;
      return same ? line : earlier;
    });
    this.#journal = new Journal(path, this.disk);
    if (!found) this.append(iteration, metrics);
  }

  sync(): void {
    this.#journal.sync();
  }

  /** Makes everything durable and ends. */
  close(): void {
    this.#journal.sync();
    this.#journal.close();
  }
}

/** Means over answers with a score, which are NaN if no answer has one: no fault of the numbers. */
const OVER_SCORES = /^(validation|control|reward)\/(.*\/)?(mean|stderr|drop|drop_stderr)$/;

function lineOf(iteration: number, metrics: Metrics): Record<string, number> {
  if ('iteration' in metrics) throw new InternalError('`iteration` is not a metric');
  const nonFinite = Object.entries(metrics).filter(
    ([name, value]) => !Number.isFinite(value) && !(Number.isNaN(value) && OVER_SCORES.test(name)),
  ).length;
  return { iteration, ...metrics, ...(nonFinite > 0 ? { [NON_FINITE]: nonFinite } : {}) };
}

/** Reads a run's metrics, oldest first; empty if there are none yet. Raises RunError on an invalid line. */
export function readMetrics(paths: RunPaths): MetricsLine[] {
  return readLines(paths.metrics).map(metricsOfLine);
}

/** The metrics of a journal line, whose `iteration` is a number. */
export function metricsOfLine(line: Readonly<Record<string, unknown>>): MetricsLine {
  const metrics: Record<string, number> = {};
  for (const [name, value] of Object.entries(line)) {
    const number = decodeNumber(value);
    if (name !== 'iteration' && number !== null) metrics[name] = number;
  }
  return { iteration: Number(line['iteration']), metrics };
}
