/**
 * A run's metrics as columns of numbers, read once and then only where the file grows. A long file is read in slices; until that is done, sampled
 * lines represent it.
 */
import { FollowedLog } from '../core/log/followed.js';
import { withLog } from '../core/log/reader.js';
import { decodeNumber } from '../run/journal.js';
import type { MetricsLine } from '../run/metrics.js';
import { Slices } from './runs_index.js';

const SLICE_MS = 15;

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

  /** Sets a value at an index at or beyond the end; indices in between were not measured. */
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

  /** Number of whole lines. */
  get lines(): number {
    return this.#lines;
  }
  /** Number of lines that are not metrics. */
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

  /** At most as long as `iterations`; NaN where it was not measured. */
  column(name: string): Float64Array {
    return this.#columns.get(name)?.values ?? new Float64Array(0);
  }

  /** The lines again, each with the finite values that it has. Yields between slices. */
  async toLines(): Promise<MetricsLine[]> {
    const slices = new Slices(SLICE_MS);
    const columns = [...this.#columns].map(([name, numbers]) => [name, numbers.values] as const);
    const lines: MetricsLine[] = [];
    for (const [at, iteration] of [...this.iterations].entries()) {
      const metrics: Record<string, number> = {};
      for (const [name, values] of columns) if (Number.isFinite(values[at])) metrics[name] = values[at];
      lines.push({ iteration, metrics });
      if (slices.over) await slices.next();
    }
    return lines;
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
  #whole = false;
  #reading: Promise<void> | null = null;

  constructor(path: string) {
    this.#file = new FollowedLog(path);
  }

  /** Whether everything that was there at the last look has been read. */
  get whole(): boolean {
    return this.#whole;
  }

  /**
   * Reads for this many milliseconds, starting over if the file was rewritten; then continues in the background to its end. Raises RunError when the
   * file cannot be read.
   */
  async read(forMs: number): Promise<void> {
    const reading = this.#start();
    const limit = new AbortController();
    const timer = new Promise<void>((resolve) => {
      const handle = setTimeout(resolve, forMs);
      limit.signal.addEventListener('abort', () => clearTimeout(handle));
    });
    try {
      await Promise.race([reading, timer]);
    } finally {
      limit.abort();
      // The next caller gets any error from here on.
      this.#reading?.catch(() => undefined);
    }
  }

  /** Reads to the file's end. Raises RunError when the file cannot be read. */
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
      this.#whole = true;
      return;
    }
    const { log, replaced, shorter } = found;
    try {
      if (replaced || shorter) this.#restart();
      if (log.size === this.#offset) this.#whole = true;
      const slices = new Slices(SLICE_MS);
      for (const { text, end } of log.lines(this.#offset)) {
        this.columns.take(text);
        this.#offset = end;
        if (slices.over) await slices.next();
      }
      this.#whole = true;
    } finally {
      this.#file.close();
    }
  }

  #restart(): void {
    this.columns = new Columns();
    this.#offset = 0;
    this.#whole = false;
  }
}

/** `count` lines, evenly spread over a file by position in bytes. Raises RunError when it cannot be read. */
export function sampleLines(path: string, count: number): Columns {
  const columns = new Columns();
  withLog(path, undefined, (log) => {
    for (const text of log.sample(count)) columns.take(text);
  });
  return columns;
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
