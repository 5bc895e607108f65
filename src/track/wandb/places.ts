/**
 * Where a run's lines lie in the files of a W&B run, which others may write to as well: somebody who logs from a notebook, an earlier run of that
 * name. What they wrote stays, and the lines that follow go behind it.
 */
import type { WandbCursor } from './cursor.js';

/** From the row `row` on, row i is line `history + i`, and iteration i is step `step + i`. */
export interface RowOffset {
  readonly row: number;
  readonly history: number;
  readonly step: number;
}

/** Numbers of lines in the files of a W&B run. */
export interface LineCounts {
  readonly history: number;
  readonly events: number;
  readonly output: number;
}

/** The last row of a W&B run's history, as far as it says where it comes from; null for what it does not say. */
export interface Tail {
  readonly iteration: number | null;
  readonly step: number | null;
  readonly at: number | null;
}

/** A W&B run as the server has it. */
export interface ServerLines extends LineCounts {
  readonly tail: Tail;
}

/** What others wrote, and the first step behind it. */
export interface ForeignLines extends LineCounts {
  readonly step: number;
}

type OffsetSource = Pick<WandbCursor, 'base' | 'behind'>;

/** The place of a row. */
export function offsetOfRow({ base, behind }: OffsetSource, row: number): RowOffset {
  return behind.findLast((place) => place.row <= row) ?? firstOffset(base);
}

/** The first row after this one that has another place; Infinity if there is none. */
export function nextOffsetRow({ behind }: OffsetSource, row: number): number {
  return behind.find((place) => place.row > row)?.row ?? Infinity;
}

/** How many lines of each file the server has accepted from us, or had before us. */
export function acknowledgedLines(cursor: WandbCursor): LineCounts {
  const confirmed = cursor.rows.at(-1)?.lines ?? 0;
  const history = confirmed === 0 ? cursor.base.history : offsetOfRow(cursor, confirmed - 1).history + confirmed;
  return {
    // A run that went back has fewer rows than it had sent.
    history: Math.max(history, cursor.reached ?? 0),
    events: cursor.base.events + cursor.events.lines,
    output: cursor.base.output + cursor.output.lines,
  };
}

/**
 * The cursor with which a run goes on at a server that may hold lines of others behind those that it has accepted from us. Lines of our own last
 * request, whose answer was never seen, are not taken for those of others.
 */
export function skipForeignLines(
  cursor: WandbCursor,
  there: ServerLines,
): { readonly cursor: WandbCursor; readonly others: ForeignLines | null } {
  const known = acknowledgedLines(cursor);
  const more = {
    history: Math.max(0, there.history - known.history),
    events: Math.max(0, there.events - known.events),
    output: Math.max(0, there.output - known.output),
  };
  const last = offsetOfRow(cursor, Infinity);
  const none = more.history === 0 && more.events === 0 && more.output === 0;
  if (none || hasArrived(cursor, there) || isOlderCursor(cursor, last, there)) return { cursor, others: null };
  const { base, behind } = cursor;
  const row = known.history - last.history;
  // A row's iteration is its number, or more.
  const place = { row, history: there.history - row, step: Math.max(last.step, nextFreeStep(there) - row) };
  return {
    cursor: {
      ...cursor,
      base: { ...base, events: base.events + more.events, output: base.output + more.output },
      behind: more.history === 0 ? behind : [...behind.filter((each) => each.row < row), place],
      reached: Math.max(known.history, there.history),
      sending: null,
    },
    others: { ...more, step: place.step + row },
  };
}

/** The first step behind everything that is there. */
export function nextFreeStep({ history, tail }: ServerLines): number {
  return history === 0 ? 0 : (tail.step ?? -1) + 1;
}

/**
 * Whether the last row there is ours, where nothing is noted but the places: it has the line and the step of its iteration. `iterationOf` says the
 * iteration of a row of ours.
 */
export function endsWithOurs(placed: OffsetSource, there: ServerLines, iterationOf: (row: number) => number): boolean {
  const { iteration, step } = there.tail;
  const { base, behind } = placed;
  const place = behind.findLast(({ row, history }) => row + history < there.history) ?? firstOffset(base);
  return (
    iteration !== null &&
    iteration === iterationOf(there.history - 1 - place.history) &&
    step === place.step + iteration
  );
}

/** Whether the server has taken the request under way when the cursor was written; requests are taken whole or not at all. */
function hasArrived({ sending }: WandbCursor, there: ServerLines): boolean {
  if (sending === null) return false;
  const { history, events, output, last } = sending;
  if (there.history !== history || there.events !== events || there.output !== output) return false;
  return last === null || (last.step === there.tail.step && last.at === there.tail.at);
}

/** A cursor of an earlier version does not say how far a run had come that went back: then the form of the last row decides. */
function isOlderCursor({ reached }: WandbCursor, { step }: RowOffset, { tail }: ServerLines): boolean {
  return reached === undefined && tail.iteration !== null && tail.step === step + tail.iteration;
}

function firstOffset({ history, step }: WandbCursor['base']): RowOffset {
  return { row: 0, history, step };
}
