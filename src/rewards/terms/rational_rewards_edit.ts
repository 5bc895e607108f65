/**
 * RationalRewards for edits (Wang et al., "RationalRewards: Reasoning Rewards Scale Visual Generation Both Training and Test Time", 2026,
 * arXiv 2604.11626): a report in Markdown with four aspects from 1 to 4. The value is (mean - 1) / 3 over the aspects that apply.
 */
import type { ReplyForm } from '../judge/forms.js';
import { judgedTerm } from './judged_term.js';
import { modelField, promptField, promptedQuery, promptOf, type Manner, type Origin } from './judged/prompted.js';
import { termKind } from './term.js';

const name = 'rational_rewards_edit';
const origin: Origin = { script: name, repository: 'TIGER-AI-Lab/RationalRewards' };
const placeholders = { images: ['source', 'edited'], words: ['instruction'] } as const;
const manner: Manner = { temperature: 0.1, maxCompletionTokens: 2048 };
const scale = [1, 4] as const;

/** The part of each aspect, in the order of the report. */
const aspects = [
  { part: `${name}/text_faithfulness`, heading: 'Text Faithfulness', optional: false },
  { part: `${name}/image_faithfulness`, heading: 'Image Faithfulness', optional: false },
  { part: `${name}/physical_quality`, heading: 'Physical and Visual Quality', optional: false },
  // Edits without lettering have none.
  { part: `${name}/text_rendering`, heading: 'Text Rendering', optional: true },
] as const;
const form: ReplyForm = { kind: 'aspects', aspects, scale };

export const rationalRewardsEdit = termKind({
  name,
  description:
    'Four aspects of an edit from 1 to 4 by a RationalRewards judge, which reasons before it grades: their mean, as a value from 0 to 1.',
  fields: {
    prompt: promptField('of the report', placeholders, origin),
    model: modelField,
  },
  reads: 'image',
  needs: { judge: true, truth: false, source: true },
  replyTokens: manner.maxCompletionTokens,
  asksModel: true,
  asks: () => [name],
  async create({ prompt, model }, services) {
    const template = promptOf(prompt, placeholders, `${name}.prompt`, origin);
    return judgedTerm(
      {
        name,
        questions: [
          {
            name,
            needsTruth: false,
            query: ({ key, instruction, source, edited }) =>
              promptedQuery(`${key}/${name}`, template, instruction, { source, edited }, form, manner),
            parts: (scores) =>
              Object.fromEntries(
                scores.flatMap((score, i): [string, number][] => (score === null ? [] : [[aspects[i].part, score]])),
              ),
          },
        ],
        value: (parts) => {
          const [min, max] = scale;
          const grades = aspects.flatMap(({ part }) => (part in parts ? [parts[part]] : []));
          return (grades.reduce((sum, grade) => sum + grade, 0) / grades.length - min) / (max - min);
        },
        valuePart: `${name}/overall`,
        most: 1,
        model,
      },
      services,
    );
  },
});
