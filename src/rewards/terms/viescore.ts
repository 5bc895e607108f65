/**
 * VIEScore for text-guided editing (Ku et al., "VIEScore: Towards Explainable Metrics for Conditional Image Synthesis Evaluation", 2024):
 * SC = min(edit success, over-edit), PQ = min(naturalness, artifacts), O = sqrt(SC * PQ), all from 0 to 10.
 */
import { z } from 'zod';
import { result } from '../../schema/mark.js';
import { judgedTerm } from './judged_term.js';
import { twoScoreQuery, withInstruction } from '../judge/prompts.js';
import type { Question } from './judged_term.js';
import type { ScoreParts } from '../score/types.js';
import { termKind } from './term.js';

/** Semantic consistency: instruction, source, edited. */
export const consistencyQuestion: Question = {
  name: 'viescore_sc',
  needsTruth: false,
  query: (item, prompts) =>
    twoScoreQuery(
      `${item.key}/viescore_sc`,
      withInstruction(prompts.sc, item.instruction),
      [item.source, item.edited],
      prompts.replyTokens.viescore,
    ),
  parts: ([success, overedit]) => ({
    'viescore/edit_success': success,
    'viescore/overedit': overedit,
    'viescore/semantic_consistency': Math.min(success, overedit),
  }),
};

/** Perceptual quality: the edited image alone. */
export const qualityQuestion: Question = {
  name: 'viescore_pq',
  needsTruth: false,
  query: (item, prompts) =>
    twoScoreQuery(
      `${item.key}/viescore_pq`,
      withInstruction(prompts.pq, item.instruction),
      [item.edited],
      prompts.replyTokens.viescore,
    ),
  parts: ([naturalness, artifacts]) => ({
    'viescore/naturalness': naturalness,
    'viescore/artifacts': artifacts,
    'viescore/perceptual_quality': Math.min(naturalness, artifacts),
  }),
};

/** O, from SC and PQ, all from 0 to 10. */
export function overallViescore(semanticConsistency: number, perceptualQuality: number): number {
  return Math.sqrt(semanticConsistency * perceptualQuality);
}

interface ViescorePart {
  readonly questions: readonly Question[];
  readonly value: (parts: ScoreParts) => number;
  /** As in `JudgedScore`. */
  readonly valuePart: string | null;
}

const one = (question: Question, part: string): ViescorePart => ({
  questions: [question],
  value: (parts) => parts[`viescore/${part}`],
  valuePart: null,
});

/** What the term is worth: the whole score, or one of the judge's own. */
const viescoreParts = {
  overall: {
    questions: [consistencyQuestion, qualityQuestion],
    value: (parts) => overallViescore(parts['viescore/semantic_consistency'], parts['viescore/perceptual_quality']),
    valuePart: 'viescore/overall',
  },
  edit_success: one(consistencyQuestion, 'edit_success'),
  overedit: one(consistencyQuestion, 'overedit'),
  semantic_consistency: one(consistencyQuestion, 'semantic_consistency'),
  perceptual_quality: one(qualityQuestion, 'perceptual_quality'),
} as const satisfies Record<string, ViescorePart>;
type PartName = keyof typeof viescoreParts;
const partNames = Object.keys(viescoreParts) as PartName[];

const nameOf = ({ part }: { readonly part: PartName }): string =>
  part === 'overall' ? 'viescore' : `viescore_${part}`;

export const viescore = termKind({
  name: 'viescore',
  description: 'VIEScore: how well the edit follows the instruction and how good it looks, by the judge, from 0 to 10.',
  fields: {
    part: result(
      "Which of the judge's scores counts: 'overall', sqrt(min(edit_success, overedit) * perceptual_quality), or one of those. Terms with different parts share the judge's answers.",
      z.enum(partNames).default('overall'),
      { absent: 'overall' },
    ),
  },
  most: 10,
  reads: 'image',
  needs: { judge: true, truth: false, source: true },
  nameOf,
  asks: ({ part }) => viescoreParts[part].questions.map(({ name }) => name),
  create: async ({ part }, services) => judgedTerm({ name: nameOf({ part }), ...viescoreParts[part] }, services),
});
