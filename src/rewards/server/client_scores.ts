/**
 * The three numbers that clients of IP-Adapter training read: how legible the prompt's words are in its image, a vision-language model's score, and
 * their weighted sum, all from 0 to 1.
 */
import type { CombinedOutcome } from '../score/combined.js';
import type { Outcome } from '../score/types.js';

export interface ClientScores {
  readonly vlm_score?: number | null;
  readonly ocr_confidence?: number | null;
  readonly combined_score?: number | null;
}

/** The terms that give each number; the first that exists counts. */
const origins = {
  vlm_score: ['align_quality', 'logit_expectation', 'viescore', 'ground_score'],
  ocr_confidence: ['ocr_confidence', 'ocr'],
} as const;

/** The numbers of the existing terms: null if unscored, left out if no term gives them. */
export function clientScores({ outcome: whole, terms }: CombinedOutcome): ClientScores {
  const scores: Record<string, number | null> = {};
  for (const [name, places] of Object.entries(origins)) {
    const found = places.flatMap((place) => terms.find((given) => given.name === place) ?? []).at(0);
    if (found !== undefined) scores[name] = numberOf(found.outcome);
  }
  return Object.keys(scores).length === 0 ? {} : { ...scores, combined_score: numberOf(whole) };
}

const byRule = 0;

function numberOf(outcome: Outcome): number | null {
  if (outcome.kind === 'scored') return outcome.normalised;
  return outcome.kind === 'zero_by_rule' ? byRule : null;
}
