/**
 * Follows `metrics.jsonl` row by row.
 * A run that continues after a crash cuts the file back to its last checkpoint and may then write different numbers. So
 * a follower keeps marks: digests of the file's content up to a row. It continues from the last mark that still
 * matches. In the end, every row has been passed on with its current content and number.
 */
import { createHash } from 'node:crypto';
import { z } from 'zod';
import { printable } from '../../core/errors.js';
import { FollowedLog, type LogReader } from '../../core/log.js';
import { listAttempts } from '../logs.js';
import { parseLine } from '../journal.js';
import { metricsOfLine } from '../metrics.js';
import type { RunPaths } from '../paths.js';
import type { RunAttempt } from '../record.js';

/** The state of the file after a number of lines. */
export const markSchema = z.object({
  lines: z.int().min(0),
  bytes: z.int().min(0),
  /** Digest of these lines in their order. */
  digest: z.string(),
  /** Seconds of training so far. */
  runtime: z.number(),
  /** When the last line was written, in seconds since 1970. 0 before the first line. */
  at: z.number(),
  /** The attempt that wrote the last line. */
  attempt: z.int(),
});
export type RowMark = Readonly<z.output<typeof markSchema>>;

export const START_MARK: RowMark = { lines: 0, bytes: 0, digest: '', runtime: 0, at: 0, attempt: 0 };

/** One iteration's metrics and its position in the file. */
export interface Row {
  /** Counted from 0. */
  readonly index: number;
  readonly iteration: number;
  /** May contain numbers that are not finite. */
  readonly metrics: Readonly<Record<string, number>>;
  /** The state of the file up to this row. */
  readonly mark: RowMark;
}

/**
 * Minimum number of rows between marks, except for the last one. After a change of the file, up to this many rows are
 * passed on again.
 */
const SPACING = 500;

export class RowFollower {
  readonly #file: FollowedLog;
  #marks: readonly RowMark[];
  #at: RowMark = START_MARK;

  /**
   * @param marks confirmed marks from earlier, ascending
   * @param attempts starts of attempts, to compute when a row was written from its seconds
   */
  constructor(
    readonly path: string,
    marks: readonly RowMark[],
    private readonly attempts: () => readonly RunAttempt[],
  ) {
    this.#file = new FollowedLog(path);
    this.#marks = marks;
  }

  get marks(): readonly RowMark[] {
    return this.#marks;
  }

  /** Number of confirmed rows that are unchanged. */
  get confirmed(): number {
    return this.#marks.at(-1)?.lines ?? 0;
  }

  /**
   * Returns some of the unconfirmed rows in order, or an empty list. If the file has changed, they may begin before
   * confirmed rows. Raises RunError for an invalid line.
   */
  next(): Row[] {
    const found = this.#file.look(this.#at.bytes);
    if (found === null) {
      this.#marks = [];
      return [];
    }
    if (found.replaced || found.shorter) this.#marks = this.#validMarks(found.log);
    this.#at = this.#marks.at(-1) ?? START_MARK;
    return found.log.piece(this.#at.bytes).map(({ text, end }) => this.#row(text, end));
  }

  /** Records that all rows up to this one have been passed on. */
  confirm({ mark }: Row): void {
    const marks = [...this.#marks];
    const [before, last] = [marks.at(-2)?.lines ?? 0, marks.at(-1)?.lines ?? 0];
    if (marks.length > 0 && last - before < SPACING) marks.pop();
    this.#marks = [...marks, mark];
  }

  close(): void {
    this.#file.close();
  }

  /** The marks whose lines are unchanged. */
  #validMarks(log: LogReader): readonly RowMark[] {
    let [lines, bytes, digest] = [0, 0, ''];
    const holding: RowMark[] = [];
    for (const mark of this.#marks) {
      while (lines < mark.lines) {
        const piece = log.piece(bytes).slice(0, mark.lines - lines);
        if (piece.length === 0) return holding;
        for (const { text, end } of piece) [lines, bytes, digest] = [lines + 1, end, chainDigest(digest, text)];
      }
      if (digest !== mark.digest) return holding;
      holding.push(mark);
    }
    return holding;
  }

  #row(text: string, end: number): Row {
    const { lines: index, digest, runtime, at, attempt } = this.#at;
    const { iteration, metrics } = metricsOfLine(parseLine(text, this.path, index + 1));
    const seconds = Number.isFinite(metrics['time/total']) ? Math.max(0, metrics['time/total']) : 0;
    const by = this.attempts().findLast(({ from_iteration }) => from_iteration < iteration || from_iteration === 0);
    const began = by === undefined || by.attempt === attempt ? at : Date.parse(by.started_at) / 1000;
    this.#at = {
      lines: index + 1,
      bytes: end,
      digest: chainDigest(digest, text),
      runtime: round(runtime + seconds),
      at: round(began + seconds),
      attempt: by?.attempt ?? attempt,
    };
    return { index, iteration, metrics, mark: this.#at };
  }
}

function chainDigest(digest: string, line: string): string {
  return createHash('sha256').update(digest).update(line).digest('hex').slice(0, 16);
}

/** Rounds to milliseconds, so that sums of seconds stay readable. */
function round(seconds: number): number {
  return Math.round(seconds * 1000) / 1000;
}

/** A reading position. */
export interface OutputPlace {
  readonly attempt: number;
  readonly bytes: number;
}

export interface OutputLine {
  /** ISO 8601 in UTC. Empty if unknown. */
  readonly time: string;
  readonly level: string;
  readonly text: string;
}

/** The levels that the console shows. The log has more. */
const SHOWN: ReadonlySet<string> = new Set(['error', 'warn', 'info']);

export class OutputFollower {
  #file: FollowedLog | null = null;

  constructor(private readonly paths: RunPaths) {}

  /** Some lines after a position, and the position after them. Empty if nothing was added. */
  next({ attempt, bytes }: OutputPlace): { readonly lines: readonly OutputLine[]; readonly place: OutputPlace } {
    const path = this.paths.rankLog(attempt, 0);
    if (this.#file?.path !== path) {
      this.#file?.close();
      this.#file = new FollowedLog(path);
    }
    const found = this.#file.look(bytes);
    const placed = found?.log.piece(bytes) ?? [];
    const end = placed.at(-1)?.end;
    if (end !== undefined) {
      return { lines: placed.flatMap(({ text }) => linesOf(text)), place: { attempt, bytes: end } };
    }
    // Nothing is written to an attempt's log once there is a later attempt.
    const later = listAttempts(this.paths).find((each) => each > attempt);
    return later === undefined ? { lines: [], place: { attempt, bytes } } : this.next({ attempt: later, bytes: 0 });
  }

  close(): void {
    this.#file?.close();
  }
}

/** Lines of a log entry. A line that a crash has torn is skipped. */
function linesOf(entry: string): OutputLine[] {
  let value: unknown;
  try {
    value = JSON.parse(entry);
  } catch {
    return [];
  }
  const { level, message, timestamp } = (value ?? {}) as Readonly<Record<string, unknown>>;
  if (typeof level !== 'string' || !SHOWN.has(level)) return [];
  const time = typeof timestamp === 'string' ? timestamp : '';
  return String(message)
    .split('\n')
    .map((text) => ({ time, level, text: printable(text) }));
}
