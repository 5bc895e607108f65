/** What a run printed over all its attempts, as lines with their time: from rank 0's log, whose entries have timestamps. */
import { printable } from '../core/errors.js';
import { FollowedLog } from '../core/log/followed.js';
import { listAttempts } from '../run/follow_log.js';
import type { RunPaths } from '../run/paths.js';

/** A reading position. */
export interface OutputPlace {
  readonly attempt: number;
  readonly bytes: number;
}

export interface OutputLine {
  /** ISO 8601 in UTC; '' if unknown. */
  readonly time: string;
  readonly level: string;
  readonly text: string;
}

/** The levels that the console shows; the log has more. */
const SHOWN: ReadonlySet<string> = new Set(['error', 'warn', 'info']);

export class OutputFollower {
  #file: FollowedLog | null = null;

  constructor(private readonly paths: RunPaths) {}

  /** Some lines after a position, and the position after them; empty if nothing was added. */
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

/** A line that is not an entry was torn by a crash, and is not shown. */
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
