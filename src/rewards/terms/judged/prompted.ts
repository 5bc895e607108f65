/** Presets of judges that people use: their fields, and VIEScore's two questions in the words of prompt files. */
import { z } from 'zod';
import { positiveInteger, result } from '../../../core/schema/mark.js';
import { parseReply, type ReplyForm } from '../../judge/forms.js';
import type { JudgeQuery } from '../../judge/judge.js';
import {
  fillTemplate,
  namesOf,
  readTemplate,
  type ImageName,
  type Placeholders,
  type PromptTemplate,
} from '../../judge/template.js';
import type { ScoreParts } from '../../score/types.js';
import { judgedTerm, passNames, type Question } from '../judged_term.js';
import { termKind } from '../term.js';
import { consistencyParts, overallViescore, qualityParts } from './viescore_parts.js';

/** How a published judge is asked: sampling, and the form of its reply. */
export type Manner = Pick<JudgeQuery, 'temperature' | 'topP' | 'topK' | 'maxCompletionTokens'>;

/** The source of the words of a preset. Their licenses keep them out of this repository. */
export interface Origin {
  /** Its name in scripts/judge_prompts.py. */
  readonly script: string;
  readonly repository: string;
}

function howToGet({ script, repository }: Origin): string {
  return `python scripts/judge_prompts.py ${script} CLONE FOLDER writes it, with CLONE a clone of https://github.com/${repository}`;
}

/** The required field for a prompt file. */
export function promptField(what: string, placeholders: Placeholders<ImageName>, origin: Origin) {
  const marks = namesOf(placeholders);
  return result(
    `The prompt file ${what}, with ${marks.map((mark) => `{${mark}}`).join(', ')} in their places. A line === divides a system message from the user's text.`,
    z.string().min(1),
    { file: 'text', allowed: `a prompt file; ${howToGet(origin)}` },
  );
}

/** Reads the file of a preset's field. Raises the errors of `readTemplate`. */
export function promptOf<Name extends ImageName>(
  file: string,
  placeholders: Placeholders<Name>,
  field: string,
  origin: Origin,
): PromptTemplate<Name> {
  return readTemplate(file, placeholders, { where: `reward.terms, ${field}`, next: `${howToGet(origin)}.` });
}

export const modelField = result(
  'The judge model. null means reward.model.',
  z.string().min(1).nullable().default(null),
);

/** A question in the words of a prompt file. */
export function promptedQuery<Name extends ImageName>(
  key: string,
  template: PromptTemplate<Name>,
  instruction: string,
  images: Parameters<typeof fillTemplate<Name>>[2],
  form: ReplyForm,
  manner: Manner,
): JudgeQuery {
  return {
    key,
    messages: fillTemplate(template, { instruction }, images),
    // The published clients ask for no structure, and constrained tokens would change a trained judge's replies.
    format: null,
    ...manner,
    parse: (reply, cutOff) => parseReply(form, reply, cutOff),
  };
}

interface TwoQuestions<Name extends string> {
  readonly name: Name;
  readonly description: string;
  readonly origin: Origin;
  readonly manner: Manner;
  /** The upper end of the judge's scale. */
  readonly top: number;
}

const consistency = { images: ['source', 'edited'], words: ['instruction'] } as const;
const quality = { images: ['edited'], words: [] } as const;

/**
 * A judge that was trained on VIEScore's two questions with another scale: SC = min(edit success, over-edit), PQ = min(naturalness,
 * artifacts), O = sqrt(SC * PQ). All are scaled to 0 to 10, and are means over passes.
 */
export function viescoreJudge<Name extends string>({ name, description, origin, manner, top }: TwoQuestions<Name>) {
  const names = [`${name}_sc`, `${name}_pq`];
  const form: ReplyForm = { kind: 'scores', count: 2, scale: [0, top] };
  return termKind({
    name,
    description,
    fields: {
      prompt_sc: promptField('for semantic consistency', consistency, origin),
      prompt_pq: promptField('for perceptual quality', quality, origin),
      repeats: result(
        'Passes over both questions, each with its own seed. The score is the mean. An episode is unscored if one reply is unreadable.',
        positiveInteger.default(1),
      ),
      model: modelField,
    },
    most: 10,
    reads: 'image',
    needs: { judge: true, truth: false, source: true },
    replyTokens: manner.maxCompletionTokens,
    asksModel: true,
    asks: ({ repeats }) => passNames(names, repeats),
    async create({ prompt_sc, prompt_pq, repeats, model }, services) {
      const sc = promptOf(prompt_sc, consistency, `${name}.prompt_sc`, origin);
      const pq = promptOf(prompt_pq, quality, `${name}.prompt_pq`, origin);
      const questions: readonly Question[] = [
        {
          name: names[0],
          needsTruth: false,
          query: ({ key, instruction, source, edited }) =>
            promptedQuery(`${key}/${names[0]}`, sc, instruction, { source, edited }, form, manner),
          parts: (scores) => consistencyParts(name, scores, top),
        },
        {
          name: names[1],
          needsTruth: false,
          query: ({ key, instruction, edited }) =>
            promptedQuery(`${key}/${names[1]}`, pq, instruction, { edited }, form, manner),
          parts: (scores) => qualityParts(name, scores, top),
        },
      ];
      const value = (parts: ScoreParts): number =>
        overallViescore(parts[`${name}/semantic_consistency`], parts[`${name}/perceptual_quality`]);
      return judgedTerm({ name, questions, value, valuePart: `${name}/overall`, repeats, model }, services);
    },
  });
}
