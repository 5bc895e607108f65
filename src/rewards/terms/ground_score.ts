/** Ground score as in EARL: how well an edit agrees with the labeled result, from 0 to 10. The source image is not shown. */
import { must } from '../../core/errors.js';
import { judgedTerm } from './judged_term.js';
import { parseScoreTag, plainScores } from '../judge/parse.js';
import { withInstruction } from '../judge/prompts.js';
import type { Question } from './judged_term.js';
import { termKind } from './term.js';

export const groundQuestion: Question = {
  name: 'ground_score',
  needsTruth: true,
  query(item, prompts) {
    const truth = must(item.truth, `the labeled result of ${item.key}`);
    return {
      key: `${item.key}/ground_score`,
      messages: [
        { role: 'system', parts: [prompts.ground.system] },
        { role: 'user', parts: [withInstruction(prompts.ground.user, item.instruction), truth, item.edited] },
      ],
      format: null,
      temperature: 0.3,
      maxCompletionTokens: prompts.replyTokens.ground_score,
      parse: parseScoreTag,
    };
  },
  parts: (scores) => ({ 'ground_score/overall': plainScores(scores)[0] }),
};

export const groundScore = termKind({
  name: 'ground_score',
  description: 'Agreement of the edit with the labeled result, by the judge, from 0 to 10.',
  fields: {},
  most: 10,
  reads: 'image',
  needs: { judge: true, truth: true, source: true },
  judgesSeveral: true,
  asks: () => [groundQuestion.name],
  create: async (_settings, services) =>
    judgedTerm(
      {
        name: 'ground_score',
        questions: [groundQuestion],
        value: (parts) => parts['ground_score/overall'],
        valuePart: null,
      },
      services,
    ),
});
