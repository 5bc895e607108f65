/** `metrics.jsonl`: one line per iteration, flat names, plain numbers. */
import { InternalError } from '../core/errors.js';
import { FollowedLog, type LogDisk, type LogReader, rewriteLines } from '../core/log.js';
import { decodeNumber, encodeLine, Journal, parseLine, readLines } from './journal.js';
import type { RunPaths } from './paths.js';

/** Metrics of one iteration by name, such as `reward/mean`. */
export type Metrics = Readonly<Record<string, number>>;

export interface MetricsLine {
  readonly iteration: number;
  readonly metrics: Metrics;
}

/** The metric that counts a line's non-finite numbers. */
export const NON_FINITE = 'metrics/non_finite';

/** The metrics of training throughput. */
export const SPEEDS = ['tokens/s', 'steps/s'] as const;

export interface Speed {
  readonly unit: (typeof SPEEDS)[number];
  readonly value: number;
}

/** The throughput among the given metrics. Null if there is none. */
export function speedOf(metrics: Metrics): Speed | null {
  const unit = SPEEDS.find((one) => Object.hasOwn(metrics, one));
  return unit === undefined ? null : { unit, value: metrics[unit] };
}

/**
 * Total count over total seconds of the iterations. A mean of their speeds would give fast iterations too much weight. Iterations without a speed or
 * with a speed of 0 are left out. Null if none remains.
 */
export function speedOver(lines: readonly MetricsLine[]): Speed | null {
  for (const unit of SPEEDS) {
    let count = 0;
    let seconds = 0;
    for (const { metrics } of lines) {
      const [speed, time] = [metrics[unit] as number | undefined, metrics['time/total'] as number | undefined];
      if (speed === undefined || time === undefined || !(speed > 0) || !Number.isFinite(speed * time)) continue;
      // A recorded speed is the count over the seconds of its whole iteration.
      count += speed * time;
      seconds += time;
    }
    if (seconds > 0) return { unit, value: count / seconds };
  }
  return null;
}

/** Appends the metrics of each iteration. Non-finite numbers are kept as text and counted. */
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

  /** Replaces an iteration's line atomically, or appends it. */
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

  /** Syncs and closes the file. */
  close(): void {
    this.#journal.sync();
    this.#journal.close();
  }
}

/** Means over scored answers. They are NaN if no answer has a score, which is not a numeric error. */
const OVER_SCORES = /^(validation|control|reward)\/(.*\/)?(mean|stderr|drop|drop_stderr)$/;

function lineOf(iteration: number, metrics: Metrics): Record<string, number> {
  if ('iteration' in metrics) throw new InternalError('`iteration` is not a metric');
  const nonFinite = Object.entries(metrics).filter(
    ([name, value]) => !Number.isFinite(value) && !(Number.isNaN(value) && OVER_SCORES.test(name)),
  ).length;
  return { iteration, ...metrics, ...(nonFinite > 0 ? { [NON_FINITE]: nonFinite } : {}) };
}

/** Reads a run's metrics, oldest first. Empty if there are none yet. Raises RunError for an invalid line. */
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

/** Number of bytes to read from the end of an existing file. */
const TAIL_BYTES = 512 * 1024;

export class MetricsTail {
  readonly #file: FollowedLog;
  #offset = 0;
  #last: MetricsLine | null = null;
  #curves = new Map<string, number[]>();
  #heldOut: MetricsLine[] = [];

  constructor(
    path: string,
    /** Metrics to keep curves of. */
    private readonly watched: readonly string[],
  ) {
    this.#file = new FollowedLog(path);
  }

  /** The last line. Null before the first. */
  get last(): MetricsLine | null {
    return this.#last;
  }

  /** The values of a watched metric, oldest first. For a long run, only the latest. */
  curve(metric: string): readonly number[] {
    return this.#curves.get(metric) ?? [];
  }

  /** The lines with held-out numbers: the run's first, and those near the end of the file. */
  get heldOut(): readonly MetricsLine[] {
    return this.#heldOut;
  }

  /** Reads appended lines, or the whole file if it was replaced or truncated. Raises RunError for an unreadable file. */
  read(): void {
    const found = this.#file.look(this.#offset);
    if (found === null) return;
    try {
      const { log, replaced, shorter } = found;
      // If the file grew by more than the tail, reading restarts at the end of the file.
      if (replaced || shorter || log.size - this.#offset > TAIL_BYTES) this.#begin(log);
      for (const { text, end } of log.lines(this.#offset)) {
        this.#offset = end;
        const line = parse(text);
        if (line !== null) this.#take(line);
      }
    } finally {
      this.#file.close();
    }
  }

  #begin(log: LogReader): void {
    this.#last = null;
    this.#curves = new Map();
    this.#heldOut = [];
    this.#offset = 0;
    const { size } = log;
    if (size <= TAIL_BYTES) return;
    // The first line has the first evaluation.
    const first = parse(log.piece(0, 1)[0]?.text ?? '');
    if (first !== null && isEvaluated(first)) this.#heldOut.push(first);
    // Skips the incomplete first line of the tail.
    this.#offset = log.piece(size - TAIL_BYTES, 1)[0]?.end ?? size;
  }

  #take(line: MetricsLine): void {
    this.#last = line;
    if (isEvaluated(line)) this.#heldOut.push(line);
    for (const metric of this.watched) {
      const value = line.metrics[metric] as number | undefined;
      if (value === undefined) continue;
      const curve = this.#curves.get(metric);
      if (curve === undefined) this.#curves.set(metric, [value]);
      else curve.push(value);
    }
  }
}

/** Whether a line has held-out numbers. */
export function isEvaluated({ metrics }: MetricsLine): boolean {
  return Object.keys(metrics).some((name) => name.startsWith('validation/'));
}

/** Null for a line that a power failure damaged. The run repairs it when it opens the file. */
function parse(text: string): MetricsLine | null {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return null;
  }
  if (typeof value !== 'object' || value === null) return null;
  const line = value as Readonly<Record<string, unknown>>;
  return typeof line['iteration'] === 'number' ? metricsOfLine(line) : null;
}
