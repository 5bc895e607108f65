/** The known word that a misspelt one was probably meant to be. */
import { editDistance } from './edit_distance.js';

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
    const distance = editDistance([...word.toLowerCase()], [...candidate.toLowerCase()], { swaps: true });
    if (distance < bestDistance) {
      best = candidate;
      bestDistance = distance;
    }
  }
  return best;
}
