/** The known word that a misspelt one was probably meant to be. */

/** Edit distance between two words, counting a swap of neighbours as one edit (optimal string alignment). */
export function editDistance(a: string, b: string): number {
  const from = [...a];
  const to = [...b];
  const rows = Array.from({ length: from.length + 1 }, (_, i) => {
    const row = new Array<number>(to.length + 1).fill(0);
    row[0] = i;
    return row;
  });
  for (let j = 0; j <= to.length; j++) rows[0][j] = j;
  for (let i = 1; i <= from.length; i++) {
    for (let j = 1; j <= to.length; j++) {
      const substitution = rows[i - 1][j - 1] + (from[i - 1] === to[j - 1] ? 0 : 1);
      let best = Math.min(rows[i - 1][j] + 1, rows[i][j - 1] + 1, substitution);
      if (i > 1 && j > 1 && from[i - 1] === to[j - 2] && from[i - 2] === to[j - 1]) {
        best = Math.min(best, rows[i - 2][j - 2] + 1);
      }
      rows[i][j] = best;
    }
  }
  return rows[from.length][to.length];
}

/** The one of `known` that `word` begins, else the closest to it, or null where none is close enough to be what was meant. */
export function nearest(word: string, known: readonly string[]): string | null {
  // A word of one or two letters is close to everything: no guess is better than a random one.
  const short = word.length < 3;
  const longer = known.filter((candidate) => candidate.toLowerCase().startsWith(word.toLowerCase()));
  if (!short && longer.length === 1) return longer[0];
  const limit = short ? 0 : Math.max(1, Math.floor(word.length / 3));
  let best: string | null = null;
  let bestDistance = limit + 1;
  for (const candidate of known) {
    const distance = editDistance(word.toLowerCase(), candidate.toLowerCase());
    if (distance < bestDistance) {
      best = candidate;
      bestDistance = distance;
    }
  }
  return best;
}
