/**
 * The metrics of a foreign trainer: JSON lines in one file per start of its command. They are checked and copied, so that `metrics.jsonl` has every
 * iteration once even if the trainer repeats iterations.
 */
import { LogReader } from '../../core/log.js';
import { decodeNumber, dropLinesAfter } from '../../run/journal.js';
import { MetricsJournal, type MetricsLine } from '../../run/metrics.js';
import type { RunPaths } from '../../run/paths.js';

/** The field that every line must have. */
const RESERVED = 'iteration';

/** A parsed line and the fields skipped because they are not numbers, or the reason why it cannot be parsed. */
export type ParsedLine =
  { readonly line: MetricsLine; readonly leftOut: readonly string[] } | { readonly problem: string };

/** Parses `{"iteration": n, "name": number, …}`. Accepts Python's bare NaN and Infinity as numbers. */
export function parseMetricsLine(text: string): ParsedLine {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    try {
      value = JSON.parse(quoteNonFinite(text));
    } catch {
      return { problem: 'not JSON' };
    }
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return { problem: 'not a JSON object' };
  const { iteration, ...rest } = value as Record<string, unknown>;
  if (typeof iteration !== 'number' || !Number.isInteger(iteration) || iteration < 0) {
    const found = iteration === undefined ? 'missing' : JSON.stringify(iteration);
    return { problem: `"${RESERVED}" is ${found}; allowed: an integer >= 0` };
  }
  const metrics: Record<string, number> = {};
  const leftOut: string[] = [];
  for (const [name, field] of Object.entries(rest)) {
    const number = decodeNumber(field);
    if (number === null) leftOut.push(name);
    else metrics[name] = number;
  }
  return { line: { iteration, metrics }, leftOut };
}

/** Changes to `metrics.jsonl`: first drop the lines after iteration `rewindTo` (null: none), then append. */
export interface MetricsChange {
  readonly rewindTo: number | null;
  readonly append: readonly MetricsLine[];
}

/**
 * Appends lines to those already written. A line of an earlier iteration replaces everything from that iteration on, because the trainer repeats the
 * rest. Further lines of the latest iteration add to it. `written`: the last iteration in `metrics.jsonl`, -1 for none. `open`: the line of that
 * iteration if this start of the trainer wrote it, else null.
 */
export function mergeLines(written: number, open: MetricsLine | null, lines: readonly MetricsLine[]): MetricsChange {
  const kept: MetricsLine[] = open === null ? [] : [open];
  for (const line of lines) {
    while (kept.length > 0 && kept[kept.length - 1].iteration > line.iteration) kept.pop();
    const last = kept.at(-1);
    if (last?.iteration !== line.iteration) kept.push(line);
    else kept[kept.length - 1] = { iteration: line.iteration, metrics: { ...last.metrics, ...line.metrics } };
  }
  if (kept[0] === open) kept.shift();
  const goesBack = kept.length > 0 && kept[0].iteration <= written;
  return { rewindTo: goesBack ? kept[0].iteration - 1 : null, append: kept };
}

export interface FollowOptions {
  readonly paths: RunPaths;
  /** Called with a sentence for each line that cannot be parsed and for each field that is not a number. */
  readonly warn: (sentence: string) => void;
}

/** Follows a trainer's metrics files and keeps `metrics.jsonl` equal to them. */
export class TrainerMetrics {
  #reader: LineReader | null = null;
  #journal: MetricsJournal | null = null;
  #written = -1;
  #open: MetricsLine | null = null;
  readonly #leftOut = new Set<string>();

  constructor(private readonly options: FollowOptions) {}

  /** The last reported iteration. -1 before the first. */
  get iteration(): number {
    return this.#written;
  }

  /** Rebuilds `metrics.jsonl` from the files of earlier starts, oldest first. Their problems have been reported before. */
  async replay(files: readonly string[]): Promise<void> {
    dropLinesAfter(this.options.paths.metrics, -1);
    for (const file of files) {
      const { lines } = new LineReader(file).read(true);
      this.#open = null;
      const parsed = lines.map(({ text }) => parseMetricsLine(text));
      await this.#apply(parsed.flatMap((result) => ('line' in result ? [result.line] : [])));
    }
    this.#open = null;
  }

  /** Call before the trainer is started. It appends to this file. */
  begin(file: string): void {
    this.#reader = new LineReader(file);
    this.#open = null;
  }

  /** Reads new lines. Returns whether there were any. `ended`: the trainer has ended, so the last line needs no newline. */
  async read(ended: boolean): Promise<boolean> {
    if (this.#reader === null) return false;
    const { lines, begunAgain } = this.#reader.read(ended);
    if (begunAgain) {
      this.options.warn(`${this.#reader.path} became shorter; reading it again from the start`);
      this.#open = null;
    }
    const understood: MetricsLine[] = [];
    for (const { text, number } of lines) {
      const parsed = parseMetricsLine(text);
      if ('problem' in parsed) {
        this.options.warn(`${this.#reader.path}:${number} cannot be read as metrics: ${parsed.problem}`);
        continue;
      }
      for (const name of parsed.leftOut) this.#warnOfField(name, number);
      understood.push(parsed.line);
    }
    await this.#apply(understood);
    return understood.length > 0;
  }

  /** Syncs and closes the journal. */
  async finish(): Promise<void> {
    this.#journal?.close();
    this.#journal = null;
  }

  async #apply(lines: readonly MetricsLine[]): Promise<void> {
    const { rewindTo, append } = mergeLines(this.#written, this.#open, lines);
    if (rewindTo !== null) {
      await this.finish();
      dropLinesAfter(this.options.paths.metrics, rewindTo);
    }
    for (const line of append) {
      this.#journal ??= new MetricsJournal(this.options.paths);
      this.#journal.append(line.iteration, line.metrics);
      this.#written = line.iteration;
      this.#open = line;
    }
  }

  #warnOfField(name: string, number: number): void {
    if (this.#leftOut.has(name)) return;
    this.#leftOut.add(name);
    this.options.warn(`${this.#reader?.path}:${number}: '${name}' is not a number; skipping it in this run`);
  }
}

interface NumberedLine {
  readonly text: string;
  /** Counted from 1. */
  readonly number: number;
}

/** Reads a growing file line by line. */
class LineReader {
  #offset = 0;
  #number = 0;

  constructor(readonly path: string) {}

  /** The lines since the last call. A line without a newline waits until `ended`. A missing file has none. */
  read(ended: boolean): { lines: NumberedLine[]; begunAgain: boolean } {
    const log = LogReader.open(this.path);
    const size = log?.size ?? 0;
    // A replaced file of at least the same size is continued: a trainer may rewrite its file to append to it.
    const begunAgain = size < this.#offset;
    if (begunAgain) [this.#offset, this.#number] = [0, 0];
    const lines: NumberedLine[] = [];
    if (log === null) return { lines, begunAgain };
    try {
      for (const { text, end } of log.lines(this.#offset)) {
        this.#push(lines, text);
        this.#offset = end;
      }
      const rest = ended ? log.bytes(this.#offset, log.size) : Buffer.alloc(0);
      if (rest.length > 0) this.#push(lines, rest.toString('utf8'));
      this.#offset += rest.length;
      return { lines, begunAgain };
    } finally {
      log.close();
    }
  }

  #push(lines: NumberedLine[], text: string): void {
    this.#number++;
    if (text.trim() !== '') lines.push({ text, number: this.#number });
  }
}

/** Quotes the bare NaN and Infinity that Python writes and JSON does not allow. */
function quoteNonFinite(text: string): string {
  return text.replace(/(:\s*)(NaN|-?Infinity)(?=\s*[,}])/g, '$1"$2"');
}
