/** How far two sequences are apart. */

/**
 * Edits (insert, delete, replace) from one sequence to the other (Levenshtein, 1966); with `swaps` an exchange of neighbours is one edit, too
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
