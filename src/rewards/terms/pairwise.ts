/**
 * Compares edits instead of grading them. The judge sees two answers to a prompt side by side, in both orders, and the value of an answer
 * is the share of its group that it is expected to beat (Bradley and Terry, 1952). A single answer, as held-out answers are, is compared
 * with the source or the labeled edit.
 */
import { z } from 'zod';
import { result } from '../../core/schema/mark.js';
import { pairPrompt, readWording, twoScoreQuery, withInstruction } from '../judge/prompts.js';
import type { Ask } from './pairwise/meeting.js';
import { comparingFields, questionsAboutPairs } from './pairwise/fields.js';
import { termKind, type Term } from './term.js';

export const pairwise = termKind({
  name: 'pairwise',
  description:
    'The judge compares the edits of a group in pairs, in both orders. The value of an edit is the share of the others that it is expected to beat, from 0 to 1. A single answer, as held-out answers are, is compared with the source or the label.',
  fields: {
    model: result('The judge model. null means reward.model.', z.string().min(1).nullable().default(null)),
    ...comparingFields,
    criteria: result(
      'A file with criteria in words for the better edit. null means the built-in wording. The images, the instruction and the form of the reply are added.',
      z.string().min(1).nullable().default(null),
      { file: 'text' },
    ),
  },
  reads: 'image',
  nameOf: ({ against }) => (against === 'source' ? 'pairwise' : `pairwise_${against}`),
  needs: { judge: true, truth: false, source: true },
  asks: () => [],
  questions: ({ rounds }, answers) => questionsAboutPairs(answers, rounds),
  async create({ model, criteria, rounds, against }, services): Promise<Term> {
    const { comparingTerm } = await import('./pairwise/comparing.js');
    const wording =
      criteria === null ? null : readWording(criteria, 'the file of criteria', 'reward.terms, pairwise.criteria');
    const text = pairPrompt(wording);
    const judge = services.judge(model ?? undefined);
    const { prompts } = services;
    const ask: Ask = (question, { instruction, source, first, second }, signal, options) => {
      const words = withInstruction(text, instruction);
      const query = twoScoreQuery(question, words, [source, first, second], prompts.replyTokens.viescore);
      return judge.ask(query, signal, options);
    };
    return comparingTerm({ name: 'pairwise', rounds, against, ask });
  },
});
