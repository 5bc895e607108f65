/** A judged term of the user's own: a prompt file, a scale and the number of scores. */
import { z } from 'zod';
import { average } from '../../core/statistics.js';
import { positiveInteger, result } from '../../core/schema/mark.js';
import type { ReplyForm } from '../judge/forms.js';
import type { ReplyFormat } from '../judge/judge.js';
import { plainScores, type Scale } from '../judge/parse.js';
import { readTemplate } from '../judge/template.js';
import { judgedTerm, passNames, type Question } from './judged_term.js';
import { modelField, promptedQuery } from './judged/prompted.js';
import { termKind } from './term.js';

const name = 'graded';
const placeholders = { images: ['source', 'edited'], words: ['instruction'] } as const;

/** How several scores become one. */
const combinations = {
  mean: average,
  min: (scores: readonly number[]) => Math.min(...scores),
} as const satisfies Record<string, (scores: readonly number[]) => number>;
const combinationNames = Object.keys(combinations) as (keyof typeof combinations)[];

/** The reply to such a question. A constrained decoder may write the reasoning first or not at all: only the scores are needed. */
function formatOf(count: number, [minimum, maximum]: Scale): ReplyFormat {
  return {
    name: 'scores',
    schema: {
      type: 'object',
      properties: {
        reasoning: { type: 'string', maxLength: 400 },
        score: { type: 'array', items: { type: 'number', minimum, maximum }, minItems: count, maxItems: count },
      },
      required: ['reasoning', 'score'],
      additionalProperties: false,
    },
  };
}

export const graded = termKind({
  name,
  description: 'Scores of an edit by the judge with your own question, on a scale of your own, as a value from 0 to 1.',
  fields: {
    prompt: result(
      'The prompt file with {instruction}, {source} and {edited} in their places. A line === divides a system message from the user\'s text. It has to ask for {"reasoning": "...", "score": [...]}.',
      z.string().min(1),
      { file: 'text', allowed: 'a prompt file' },
    ),
    scale: result('The lowest and the highest score.', z.tuple([z.number(), z.number()]).default([0, 10]), {
      allowed: 'two numbers, the lower one first',
    }),
    scores: result('The number of scores in a reply.', positiveInteger.default(1)),
    combine: result('How several scores become one.', z.enum(combinationNames).default('mean')),
    repeats: result(
      'How often the question is asked, each time with its own seed. The value is the mean.',
      positiveInteger.default(1),
    ),
    temperature: result(
      'Sampling temperature of the judge. Repeats need one above 0 to differ.',
      z.number().min(0).max(2).default(0),
    ),
    structured: result('Whether to request the form of the reply as a JSON schema.', z.boolean().default(true)),
    max_reply_tokens: result('The longest reply, in tokens.', positiveInteger.default(400)),
    model: modelField,
  },
  reads: 'image',
  needs: { judge: true, truth: false, source: true },
  asksModel: true,
  asks: ({ repeats }) => passNames([name], repeats),
  conflict: ({ scale: [min, max] }) =>
    min < max ? null : { field: 'scale', message: `found [${min}, ${max}]; allowed: two numbers, the lower one first` },
  async create(
    { prompt, scale, scores, combine, repeats, temperature, structured, max_reply_tokens, model },
    services,
  ) {
    const template = readTemplate(prompt, placeholders, {
      where: `reward.terms, ${name}.prompt`,
      next: 'Write your question there, with {instruction}, {source} and {edited} in their places.',
    });
    const form: ReplyForm = { kind: 'scores', count: scores, scale };
    const [min, max] = scale;
    const manner = { temperature, maxCompletionTokens: max_reply_tokens };
    const question: Question = {
      name,
      needsTruth: false,
      query: ({ key, instruction, source, edited }) => ({
        ...promptedQuery(`${key}/${name}`, template, instruction, { source, edited }, form, manner),
        format: structured ? formatOf(scores, scale) : null,
      }),
      parts: (found) => {
        const grades = plainScores(found);
        const each = Object.fromEntries(grades.map((grade, i) => [`${name}/score_${i + 1}`, grade]));
        return { ...each, [`${name}/combined`]: combinations[combine](grades) };
      },
    };
    return judgedTerm(
      {
        name,
        questions: [question],
        value: (parts) => (parts[`${name}/combined`] - min) / (max - min),
        valuePart: `${name}/overall`,
        most: 1,
        repeats,
        model,
      },
      services,
    );
  },
});
