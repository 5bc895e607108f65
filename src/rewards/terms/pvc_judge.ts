/**
 * PVC-Judge of GEditBench v2 (2026, arXiv 2603.28547): which of two edits keeps the rest of the source better. It names a winner. As for
 * `pairwise`, both orders are asked, and the value of an answer is the share of its group that it is expected to beat.
 */
import type { ReplyForm } from '../judge/forms.js';
import { modelField, promptField, promptedQuery, promptOf, type Manner, type Origin } from './judged/prompted.js';
import { comparingFields, questionsAboutPairs } from './pairwise/fields.js';
import type { Ask } from './pairwise/meeting.js';
import { termKind } from './term.js';

const name = 'pvc_judge';
const origin: Origin = { script: name, repository: 'ZhangqiJiang07/GEditBench_v2' };
const placeholders = { images: ['source', 'first', 'second'], words: ['instruction'] } as const;
const manner: Manner = { temperature: 0.7, maxCompletionTokens: 2048 };
const form: ReplyForm = { kind: 'winner' };

export const pvcJudge = termKind({
  name,
  description:
    'A PVC-Judge compares the edits of a group in pairs, in both orders, and names the one that keeps more of the source. The value is the share of the others that an edit is expected to beat, from 0 to 1.',
  fields: {
    prompt: promptField('of the comparison', placeholders, origin),
    model: modelField,
    ...comparingFields,
  },
  reads: 'image',
  nameOf: ({ against }) => (against === 'source' ? name : `${name}_${against}`),
  needs: { judge: true, truth: false, source: true },
  replyTokens: manner.maxCompletionTokens,
  asksModel: true,
  asks: () => [],
  questions: ({ rounds }, answers) => questionsAboutPairs(answers, rounds),
  async create({ prompt, model, rounds, against }, services) {
    const { comparingTerm } = await import('./pairwise/comparing.js');
    const template = promptOf(prompt, placeholders, `${name}.prompt`, origin);
    const judge = services.judge(model ?? undefined);
    const ask: Ask = (question, { instruction, source, first, second }, signal, options) => {
      const images = { source, first, second };
      return judge.ask(promptedQuery(question, template, instruction, images, form, manner), signal, options);
    };
    return comparingTerm({ name, rounds, against, ask });
  },
});
