/**
 * Compares edits instead of grading them. The judge sees two answers to a prompt side by side, in both orders, and the value of an answer
 * is the share of its group that it is expected to beat (Bradley and Terry, 1952). A single answer, as held-out answers are, is compared
 * with the source or the labeled edit.
 */
import { z } from 'zod';
import { DataError } from '../../core/errors.js';
import { result } from '../../core/schema/mark.js';
import { pairPrompt, readWording, twoScoreQuery, withInstruction } from '../judge/prompts.js';
import type { AnswerGroup, JudgeItem, Outcome, ScoreOptions } from '../score/types.js';
import type { Ask } from './pairwise/meeting.js';
import { roundsOf } from './pairwise/tournament.js';
import { termKind, type Term } from './term.js';

/** Orders in which a pair is shown. */
const ORDERS = 2;

/** A single answer is compared with one of these. */
const rivals = ['source', 'label'] as const;

export const pairwise = termKind({
  name: 'pairwise',
  description:
    'The judge compares the edits of a group in pairs, in both orders. The value of an edit is the share of the others that it is expected to beat, from 0 to 1. A single answer, as held-out answers are, is compared with the source or the label.',
  fields: {
    model: result('The judge model. null means reward.model.', z.string().min(1).nullable().default(null)),
    rounds: result(
      "How many others each answer is compared with, or one less if the number of answers is odd. null: log2 of the number of answers, rounded up, where each round pairs answers of equal success (a Swiss tournament). 'all': every other answer. Each comparison is two questions.",
      z
        .union([z.int().min(1), z.literal('all')])
        .nullable()
        .default(null),
      { allowed: "null, 'all', or a whole number of at least 1" },
    ),
    against: result(
      "The opponent of a single answer: the 'source', or the labeled edit ('label').",
      z.enum(rivals).default('source'),
    ),
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
  questions: ({ rounds }, answers) =>
    answers === 1 ? ORDERS : roundsOf(answers, rounds) * Math.floor(answers / 2) * ORDERS,
  async create({ model, criteria, rounds, against }, services): Promise<Term> {
    const [{ prepareItem }, { judgeImage, whyUnshowable }, { compareAlone }, { compareGroup }] = await Promise.all([
      import('../score/judged_item.js'),
      import('../judge/images.js'),
      import('./pairwise/meeting.js'),
      import('./pairwise/meeting.js'),
    ]);
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
    const byGroup = new WeakMap<AnswerGroup, Promise<ReadonlyMap<string, Outcome>>>();

    async function score(item: JudgeItem, signal?: AbortSignal, options?: ScoreOptions): Promise<Outcome> {
      const prepared = prepareItem(item, null);
      if ('kind' in prepared) return prepared;
      const group = options?.group;
      if (group !== undefined) {
        if (group.answers.length + group.ruledOut < 2) return withoutRivals(item);
        const compared = byGroup.get(group) ?? compareGroup(group, { rounds, ask }, signal, options);
        byGroup.set(group, compared);
        const found = (await compared).get(item.key);
        return found ?? { kind: 'unscored', reason: 'aborted', detail: `${item.key} is not in its group`, parts: {} };
      }
      const rival = against === 'label' ? item.truth : item.source;
      if (rival === null) {
        throw new DataError("the term 'pairwise' compares with the labeled result, but this prompt has none", {
          where: item.key,
          next: "Evaluate on data with labeled results, or leave pairwise.against at 'source'.",
        });
      }
      const problem = whyUnshowable(rival);
      if (problem !== null) {
        return {
          kind: 'unscored',
          reason: 'bad_request',
          detail: `${item.key}, ${against} image: ${problem}`,
          parts: {},
        };
      }
      return compareAlone(prepared, judgeImage(rival, `${item.key}, ${against} image`), ask, signal, options);
    }

    return { name: 'pairwise', score, close: async () => {} };
  },
});

/** All others of its group are lost: compared with the source, it would be worth something else than they are. */
function withoutRivals({ key }: JudgeItem): Outcome {
  const detail = `${key}: its group has no other answer to compare with`;
  return { kind: 'unscored', reason: 'aborted', detail, parts: {} };
}
