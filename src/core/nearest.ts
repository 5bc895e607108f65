/** The known word that a misspelled one probably meant, and the edit distance of sequences. */

/** Whether a word abbreviates a name of several words: `lr` is `learning_rate`, and `batch_size` ends `per_device_batch_size`. */
function abbreviates(word: string, name: string): boolean {
  const parts = name.split('_');
  if (parts.length < 2) return false;
  return parts.map((part) => part.charAt(0)).join('') === word || name.endsWith(`_${word}`);
}

/** The one of `known` that `word` starts or abbreviates, else the closest one. Null if none is close enough, or several are. */
export function nearest(word: string, known: readonly string[]): string | null {
  // A word of one or two letters is close to everything, so no guess is made.
  const short = word.length < 3;
  const longer = known.filter((candidate) => candidate.toLowerCase().startsWith(word.toLowerCase()));
  if (!short && longer.length === 1) return longer[0];
  const abbreviated = known.filter((candidate) => abbreviates(word.toLowerCase(), candidate.toLowerCase()));
  if (abbreviated.length === 1) return abbreviated[0];
  const limit = short ? 0 : Math.max(1, Math.floor(word.length / 3));
  let best: string | null = null;
  let bestDistance = limit + 1;
  for (const candidate of known) {
    const distance = editDistance([...word.toLowerCase()], [...candidate.toLowerCase()], { swaps: true });
    if (distance < bestDistance) {
      best = candidate;
      bestDistance = distance;
    }
  }
  return best;
}

/**
 * Edits (insert, delete, replace) from one sequence to the other (Levenshtein, 1966). With `swaps`, exchanging neighbors is one edit, too
 * (optimal string alignment). Elements are compared by `===`.
 */
export function editDistance<T>(from: readonly T[], to: readonly T[], { swaps = false } = {}): number {
  let before: number[] = [];
  let above: number[] = [];
  let row = Array.from({ length: to.length + 1 }, (_, j) => j);
  for (let i = 1; i <= from.length; i++) {
    [before, above, row] = [above, row, [i]];
    for (let j = 1; j <= to.length; j++) {
      const replaced = above[j - 1] + (from[i - 1] === to[j - 1] ? 0 : 1);
      let best = Math.min(above[j] + 1, row[j - 1] + 1, replaced);
      if (swaps && i > 1 && j > 1 && from[i - 1] === to[j - 2] && from[i - 2] === to[j - 1]) {
        best = Math.min(best, before[j - 2] + 1);
      }
      row.push(best);
    }
  }
  return row[to.length];
}
