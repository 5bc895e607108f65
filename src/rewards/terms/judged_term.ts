/** Terms made from the judge's answers: the questions of each, and how the answers give its value. */
import { grouped } from '../../core/grouped.js';
import { prepareItem, unscoredOutcome, type JudgedItem } from '../score/judged_item.js';
import { maxScore } from '../judge/parse.js';
import type { JudgeQuery } from '../judge/judge.js';
import type { PromptSet } from '../judge/prompts.js';
import type { Term, TermServices } from './term.js';
import type { JudgeItem, Outcome, ScoreOptions, ScoreParts } from '../score/types.js';

/** One question about an item, and the score parts that its answer gives. */
export interface Question {
  /** Names the question in keys of judgements. */
  readonly name: string;
  readonly needsTruth: boolean;
  query(item: JudgedItem, prompts: PromptSet): JudgeQuery;
  /** Parts by name. `scores` has as many entries as the query's parser asks for. Null is not applicable. */
  parts(scores: readonly (number | null)[]): ScoreParts;
}

export interface JudgedScore {
  readonly name: string;
  readonly questions: readonly Question[];
  /** The value from 0 to `most`, of the parts that all questions gave in one pass. */
  readonly value: (parts: ScoreParts) => number;
  /** The part under which the value is recorded. Null if a question's part already is the value. */
  readonly valuePart: string | null;
  /** The highest value. Default: 10. */
  readonly most?: number;
  /** How often each question is asked, with other seeds. Values and parts are means over these passes. Default: once. */
  readonly repeats?: number;
  /** The judge model. Null or absent means that of the run. */
  readonly model?: string | null;
}

/** The names of questions that are asked in several passes, for keys of judgements. The first pass has the questions' own names. */
export function passNames(names: readonly string[], repeats: number): string[] {
  return Array.from({ length: repeats }, (_, pass) => names.map((name) => `${name}${suffixOf(pass)}`)).flat();
}

function suffixOf(pass: number): string {
  return pass === 0 ? '' : `_${pass + 1}`;
}

/** The value among the parts of a pass. No part has this name, because parts have a slash in theirs. */
const valueKey = 'value';

/** The mean of each part over those that have it. */
function meanOf(all: readonly ScoreParts[]): Record<string, number> {
  const named = grouped(all.flatMap(Object.entries<number>), ([part]) => part);
  return Object.fromEntries(
    [...named].map(([part, found]) => [part, found.reduce((sum, [, number]) => sum + number, 0) / found.length]),
  );
}

/**
 * Asks all questions about an item at once, in all passes. If one of them gets no answer, the item is unscored. Raises DataError for
 * faults of the dataset: a missing source image, a missing labeled result that a question shows, or an image that is too small.
 */
export function judgedTerm(
  { name, questions, value, valuePart, most = maxScore, repeats = 1, model }: JudgedScore,
  { judge: judgeOf, prompts }: TermServices,
): Term {
  const judge = judgeOf(model ?? undefined);
  const passes = Array.from({ length: repeats }, (_, index) => ({ index, of: repeats }));
  const truthFor = questions.some(({ needsTruth }) => needsTruth) ? name : null;

  async function score(item: JudgeItem, signal?: AbortSignal, options?: ScoreOptions): Promise<Outcome> {
    const prepared = prepareItem(item, truthFor);
    if ('kind' in prepared) return prepared;
    const answers = await Promise.all(
      passes.flatMap((pass) =>
        questions.map(async (question) => {
          const query = question.query(prepared, prompts);
          const passQuery = { ...query, key: `${query.key}${suffixOf(pass.index)}`, pass };
          const judgement = await judge.ask(passQuery, signal, options);
          return { pass, judgement, parts: judgement.problem === null ? question.parts(judgement.scores) : {} };
        }),
      ),
    );
    const unscored = unscoredOutcome(
      answers.map(({ judgement }) => judgement),
      meanOf(answers.map(({ parts }) => parts)),
    );
    if (unscored !== null) return unscored;
    const found = passes.map((pass): ScoreParts => {
      const parts = Object.assign(
        {},
        ...answers.flatMap((one) => (one.pass === pass ? [one.parts] : [])),
      ) as ScoreParts;
      return { ...parts, [valueKey]: value(parts) };
    });
    const { [valueKey]: mean, ...parts } = meanOf(found);
    return {
      kind: 'scored',
      value: mean,
      normalised: mean / most,
      parts: valuePart === null ? parts : { ...parts, [valuePart]: mean },
    };
  }

  return { name, score, close: async () => {} };
}
