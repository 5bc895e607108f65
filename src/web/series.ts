/** A run's metrics as columns of numbers. The file is read once, then only its new lines. Long files are read in slices. */
import { FollowedLog, withLog } from '../core/log.js';
import { decodeNumber, parseLine } from '../run/journal.js';
import { metricsOfLine, type MetricsLine } from '../run/metrics.js';

const SLICE_MS = 15;

/** Yields to other work after this many milliseconds. */
export class Slices {
  #began = performance.now();

  constructor(private readonly sliceMs: number) {}

  get over(): boolean {
    return performance.now() - this.#began > this.sliceMs;
  }

  async next(): Promise<void> {
    await new Promise<void>((resolve) => setImmediate(resolve));
    this.#began = performance.now();
  }
}

/** An array of numbers that grows at its end. */
class GrowingNumbers {
  #values = new Float64Array(64);
  #length = 0;

  get values(): Float64Array {
    return this.#values.subarray(0, this.#length);
  }

  get bytes(): number {
    return this.#values.byteLength;
  }

  /** Sets a value at an index at or beyond the end. Skipped indices become NaN. */
  put(place: number, value: number): void {
    if (place >= this.#values.length) {
      const larger = new Float64Array(Math.max(2 * this.#values.length, place + 1));
      larger.set(this.#values.subarray(0, this.#length));
      this.#values = larger;
    }
    this.#values.fill(NaN, this.#length, place);
    this.#values[place] = value;
    this.#length = place + 1;
  }
}

/** Lines of metrics as columns. */
export class Columns {
  readonly #iterations = new GrowingNumbers();
  readonly #columns = new Map<string, GrowingNumbers>();
  #lines = 0;
  #wrong = 0;

  /** Number of complete lines. */
  get lines(): number {
    return this.#lines;
  }
  /** Number of invalid lines. */
  get wrong(): number {
    return this.#wrong;
  }
  get names(): readonly string[] {
    return [...this.#columns.keys()].sort();
  }
  get iterations(): Float64Array {
    return this.#iterations.values;
  }
  get bytes(): number {
    let sum = this.#iterations.bytes;
    for (const column of this.#columns.values()) sum += column.bytes;
    return sum;
  }

  /** At most as long as `iterations`, with NaN for missing values. */
  column(name: string): Float64Array {
    return this.#columns.get(name)?.values ?? new Float64Array(0);
  }

  take(text: string): void {
    let line: Record<string, unknown>;
    try {
      line = JSON.parse(text) as Record<string, unknown>;
    } catch {
      this.#wrong++;
      return;
    }
    const iteration = typeof line === 'object' && line !== null ? line['iteration'] : null;
    if (typeof iteration !== 'number') {
      this.#wrong++;
      return;
    }
    const place = this.#lines++;
    this.#iterations.put(place, iteration);
    for (const name in line) {
      if (name === 'iteration') continue;
      const value = decodeNumber(line[name]);
      if (value === null) continue;
      let column = this.#columns.get(name);
      if (column === undefined) this.#columns.set(name, (column = new GrowingNumbers()));
      column.put(place, value);
    }
  }
}

/** Follows one file of metrics. */
export class MetricsSeries {
  columns = new Columns();
  readonly #file: FollowedLog;
  #offset = 0;
  #reading: Promise<void> | null = null;

  constructor(path: string) {
    this.#file = new FollowedLog(path);
  }

  /** Reads to the end of the file, from its start if it was rewritten. Raises RunError for an unreadable file. */
  async readWhole(): Promise<void> {
    await this.#start();
  }

  #start(): Promise<void> {
    this.#reading ??= this.#advance().finally(() => (this.#reading = null));
    return this.#reading;
  }

  async #advance(): Promise<void> {
    const found = this.#file.look(this.#offset);
    if (found === null) {
      this.#restart();
      return;
    }
    const { log, replaced, shorter } = found;
    try {
      if (replaced || shorter) this.#restart();
      const slices = new Slices(SLICE_MS);
      for (const { text, end } of log.lines(this.#offset)) {
        this.columns.take(text);
        this.#offset = end;
        if (slices.over) await slices.next();
      }
    } finally {
      this.#file.close();
    }
  }

  #restart(): void {
    this.columns = new Columns();
    this.#offset = 0;
  }
}

/** The series of recently viewed runs, within a limit of bytes. */
export class SeriesCache {
  readonly #series = new Map<string, MetricsSeries>();

  constructor(private readonly mostBytes = 512 * 1024 * 1024) {}

  get(path: string): MetricsSeries {
    const found = this.#series.get(path) ?? new MetricsSeries(path);
    this.#series.delete(path);
    this.#series.set(path, found);
    let sum = 0;
    for (const { columns } of this.#series.values()) sum += columns.bytes;
    for (const [key, { columns }] of this.#series) {
      if (sum <= this.mostBytes || key === path) break;
      sum -= columns.bytes;
      this.#series.delete(key);
    }
    return found;
  }
}

/** A line with an evaluation contains this. */
const MARK = Buffer.from('"validation/');
/** Bytes searched from each end. */
const MAX_BYTES = 16 * 1024 * 1024;

/**
 * The lines of the first and the last evaluation, if they are within 16 megabytes of the file's ends. One line if there was only one evaluation, none
 * before the first. Raises RunError for an unreadable file, or if one of these lines is invalid.
 */
export function evaluatedLines(path: string): MetricsLine[] {
  return withLog(path, [], (log) => {
    const last = log.lastWith(MARK, MAX_BYTES);
    if (last === null) return [];
    const first = log.firstWith(MARK, MAX_BYTES) ?? last;
    return (first.start === last.start ? [last] : [first, last]).map(({ text }) =>
      metricsOfLine(parseLine(text, path, 0)),
    );
  });
}
