/** The arithmetic of VIEScore for judges of any scale from 0: all parts and the overall score are from 0 to 10. */
import { maxScore, plainScores } from '../../judge/parse.js';
import type { ScoreParts } from '../../score/types.js';

/** Semantic consistency: the lower of edit success and over-editing. `top` is the upper end of the judge's scale. */
export function consistencyParts(name: string, scores: readonly (number | null)[], top: number): ScoreParts {
  const [success, overedit] = rescaled(scores, top);
  return {
    [`${name}/edit_success`]: success,
    [`${name}/overedit`]: overedit,
    [`${name}/semantic_consistency`]: Math.min(success, overedit),
  };
}

/** Perceptual quality: the lower of naturalness and freedom from artifacts. */
export function qualityParts(name: string, scores: readonly (number | null)[], top: number): ScoreParts {
  const [naturalness, artifacts] = rescaled(scores, top);
  return {
    [`${name}/naturalness`]: naturalness,
    [`${name}/artifacts`]: artifacts,
    [`${name}/perceptual_quality`]: Math.min(naturalness, artifacts),
  };
}

/** O, from SC and PQ, all from 0 to 10. */
export function overallViescore(semanticConsistency: number, perceptualQuality: number): number {
  return Math.sqrt(semanticConsistency * perceptualQuality);
}

function rescaled(scores: readonly (number | null)[], top: number): number[] {
  return plainScores(scores).map((score) => score / (top / maxScore));
}
