/** Log-probabilities of the same tokens from two places. */

/** One number for each position of a sequence but its last; NaN where a place tells none. */
export type ByPosition = ArrayLike<number>;

export interface Pair {
  readonly one: ByPosition;
  readonly other: ByPosition;
}

export interface ShiftedDifference {
  /** By how many positions `one` is shifted against `other`. */
  readonly shift: number;
  /** Mean absolute difference, in nats, without that shift. */
  readonly difference: number;
  /** How many numbers were compared. */
  readonly count: number;
}

const SHIFTS = [0, 1, -1] as const;

/** A shift is one by which they match within `limit`, and without which they do not. Null where there is nothing to compare. */
export function compareShifted(pairs: readonly Pair[], limit: number): ShiftedDifference | null {
  const all = SHIFTS.map((shift) => ({ shift, ...difference(pairs, shift) }));
  if (all[0].count === 0) return null;
  return all.find(({ difference: found }) => found <= limit) ?? all[0];
}

function difference(pairs: readonly Pair[], shift: number): Omit<ShiftedDifference, 'shift'> {
  let [sum, count] = [0, 0];
  for (const { one, other } of pairs) {
    for (let i = 0; i < other.length; i++) {
      const found = Math.abs(one[i + shift] - other[i]);
      if (!Number.isFinite(found)) continue;
      sum += found;
      count += 1;
    }
  }
  return { difference: count === 0 ? NaN : sum / count, count };
}

/** How much of the way from `before` to `after` is missing in `found`: 0 for none, 1 for all of it; null where the way is shorter than `least`. */
export function lag(
  positions: readonly { readonly found: ByPosition; readonly before: ByPosition; readonly after: ByPosition }[],
  least: number,
): number | null {
  let [missing, way, count] = [0, 0, 0];
  for (const { found, before, after } of positions) {
    for (let i = 0; i < found.length; i++) {
      missing += Math.abs(found[i] - after[i]);
      way += Math.abs(before[i] - after[i]);
      count += 1;
    }
  }
  return count === 0 || way / count < least ? null : missing / way;
}

/** The answers to a request that stops at `stop`, each with what is wrong with its end. */
export function wrongEnds(
  answers: readonly { readonly ids: readonly number[]; readonly finished: boolean }[],
  { stop, maxTokens }: { readonly stop: readonly number[]; readonly maxTokens: number },
): { readonly wrong: readonly string[]; readonly stopped: number } {
  const ends = new Set(stop);
  const wrong = answers.flatMap(({ ids, finished }) => {
    const at = ids.findIndex((id) => ends.has(id));
    if (at >= 0 && at < ids.length - 1) return `an answer goes on after the token ${ids[at]}, which ends it`;
    if (at >= 0) return finished ? [] : `an answer ends with the token ${ids[at]}, and does not say that it stopped`;
    if (finished) return `an answer says that it stopped, and its last token is ${ids.at(-1) ?? 'none'}`;
    return ids.length === maxTokens ? [] : `an answer ends after ${ids.length} of ${maxTokens} tokens without an end`;
  });
  const stopped = answers.filter(({ ids, finished }) => finished || ids.some((id) => ends.has(id))).length;
  return { wrong, stopped };
}
