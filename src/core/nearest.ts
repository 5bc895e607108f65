/** The known word that a misspelt one was probably meant to be. */
import { editDistance } from './edit_distance.js';

/** Whether a word abbreviates a name of several words: `lr` is `learning_rate`, `batch_size` ends `per_device_batch_size`. */
function abbreviates(word: string, name: string): boolean {
  const parts = name.split('_');
  if (parts.length < 2) return false;
  return parts.map((part) => part.charAt(0)).join('') === word || name.endsWith(`_${word}`);
}

/**
 * The one of `known` that `word` begins or abbreviates, else the closest to it by letters; null where none is close enough to be what
 * was meant, or several are.
 */
export function nearest(word: string, known: readonly string[]): string | null {
  // A word of one or two letters is close to everything: no guess is better than a random one.
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
