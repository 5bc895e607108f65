/**
 * VIEScore for text-guided editing (Ku et al., "VIEScore: Towards Explainable Metrics for Conditional Image Synthesis Evaluation", 2024):
 * SC = min(edit success, over-edit), PQ = min(naturalness, artifacts), O = sqrt(SC * PQ), all from 0 to 10.
 */
import { judgedTerm } from './judged_term.js';
import { maxScore } from '../judge/parse.js';
import { twoScoreQuery, withInstruction } from '../judge/prompts.js';
import type { Question } from './judged_term.js';
import { consistencyParts, overallViescore, qualityParts } from './judged/viescore_parts.js';
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
  parts: (scores) => consistencyParts('viescore', scores, maxScore),
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
  parts: (scores) => qualityParts('viescore', scores, maxScore),
};

export const viescore = termKind({
  name: 'viescore',
  description:
    'How well the edit follows the instruction and how good it looks, by the judge (VIEScore), from 0 to 10.',
  fields: {},
  most: 10,
  reads: 'image',
  needs: { judge: true, truth: false, source: true },
  asks: () => [consistencyQuestion, qualityQuestion].map(({ name }) => name),
  create: async (_, services) =>
    judgedTerm(
      {
        name: 'viescore',
        questions: [consistencyQuestion, qualityQuestion],
        value: (parts) => overallViescore(parts['viescore/semantic_consistency'], parts['viescore/perceptual_quality']),
        valuePart: 'viescore/overall',
      },
      services,
    ),
});
