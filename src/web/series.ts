/**
 * A run's metrics as columns of numbers, read once and then only where the file grows. A long file is read in slices; until that is done, sampled
 * lines represent it.
 */
import { EditrlError } from '../core/errors.js';
import { FollowedLog, type LogReader, withLog } from '../core/log.js';
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
