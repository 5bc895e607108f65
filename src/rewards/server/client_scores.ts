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

/** Where each number comes from: a term of its own, or a part of a term that gives several. The first that exists counts. */
const origins: Readonly<Record<'vlm_score' | 'ocr_confidence', readonly { term: string; part?: string }[]>> = {
  vlm_score: [
    { term: 'ocr_vlm', part: 'ocr_vlm/vlm_score' },
    { term: 'align_quality' },
    { term: 'logit_expectation' },
    { term: 'viescore' },
    { term: 'ground_score' },
  ],
  ocr_confidence: [{ term: 'ocr_vlm', part: 'ocr_vlm/ocr_confidence' }, { term: 'ocr_confidence' }, { term: 'ocr' }],
};

/** The numbers of the existing terms: null if unscored, left out if no term gives them. */
export function clientScores({ outcome: whole, terms }: CombinedOutcome): ClientScores {
  const scores: Record<string, number | null> = {};
  for (const [name, places] of Object.entries(origins)) {
    for (const { term, part } of places) {
      const found = terms.find((given) => given.name === term);
      if (found === undefined) continue;
      scores[name] = part === undefined ? numberOf(found.outcome) : partOf(found.outcome, part);
      break;
    }
  }
  return Object.keys(scores).length === 0 ? {} : { ...scores, combined_score: numberOf(whole) };
}

const byRule = 0;

function numberOf(outcome: Outcome): number | null {
  if (outcome.kind === 'scored') return outcome.normalised;
  return outcome.kind === 'zero_by_rule' ? byRule : null;
}

/** A part that was obtained is returned even if another part is missing. */
function partOf(outcome: Outcome, part: string): number | null {
  if (Object.hasOwn(outcome.parts, part)) return outcome.parts[part];
  return outcome.kind === 'zero_by_rule' ? byRule : null;
}
