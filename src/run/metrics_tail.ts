/** Follows `metrics.jsonl` while it grows, however long it is: the latest line, some curves, and the held-out evaluations. */
import { FollowedLog } from '../core/log/followed.js';
import type { LogReader } from '../core/log/reader.js';
import { metricsOfLine, type MetricsLine } from './metrics.js';

/** How much is read from the end of a file that exists already. */
const TAIL_BYTES = 512 * 1024;

export class MetricsTail {
  readonly #file: FollowedLog;
  #offset = 0;
  #last: MetricsLine | null = null;
  #curves = new Map<string, number[]>();
  #heldOut: MetricsLine[] = [];

  constructor(
    path: string,
    /** The metrics whose curves are kept. */
    private readonly watched: readonly string[],
  ) {
    this.#file = new FollowedLog(path);
  }

  /** The last line; null before the first. */
  get last(): MetricsLine | null {
    return this.#last;
  }

  /** The values of a watched metric, oldest first; for a long run, only the latest. */
  curve(metric: string): readonly number[] {
    return this.#curves.get(metric) ?? [];
  }

  /** The lines with held-out numbers: the run's first, and those near the end of the file. */
  get heldOut(): readonly MetricsLine[] {
    return this.#heldOut;
  }

  /** Reads what was appended; a file that was replaced or cut is read from its beginning. Raises RunError when it cannot be read. */
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
    if (first !== null && isHeldOut(first)) this.#heldOut.push(first);
    // Skips the line that the tail starts in the middle of.
    this.#offset = log.piece(size - TAIL_BYTES, 1)[0]?.end ?? size;
  }

  #take(line: MetricsLine): void {
    this.#last = line;
    if (isHeldOut(line)) this.#heldOut.push(line);
    for (const metric of this.watched) {
      const value = line.metrics[metric] as number | undefined;
      if (value === undefined) continue;
      const curve = this.#curves.get(metric);
      if (curve === undefined) this.#curves.set(metric, [value]);
      else curve.push(value);
    }
  }
}

function isHeldOut({ metrics }: MetricsLine): boolean {
  return Object.keys(metrics).some((name) => name.startsWith('validation/'));
}

/** Null for the remains of a line after a power failure: the run repairs it when it opens the file. */
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
