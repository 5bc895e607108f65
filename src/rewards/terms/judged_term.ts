/** Terms made from the judge's answers: the questions of each, and how the answers give its value. */
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
  /** Parts by name, each from 0 to 10. `scores` has as many numbers as the query's parser asks for. */
  parts(scores: readonly number[]): ScoreParts;
}

export interface JudgedScore {
  readonly name: string;
  readonly questions: readonly Question[];
  /** The value from 0 to 10, of the parts that all questions gave. */
  readonly value: (parts: ScoreParts) => number;
  /** The part under which the value is recorded. Null if a question's part already is the value. */
  readonly valuePart: string | null;
}

/**
 * Asks all questions about an item at once. If one of them gets no answer, the item is unscored. Raises DataError for faults
 * of the dataset: a missing source image, a missing labeled result that a question shows, or an image that is too small.
 */
export function judgedTerm(
  { name, questions, value, valuePart }: JudgedScore,
  { judge: judgeOf, prompts }: TermServices,
): Term {
  const judge = judgeOf();
  const truthFor = questions.some(({ needsTruth }) => needsTruth) ? name : null;

  async function score(item: JudgeItem, signal?: AbortSignal, options?: ScoreOptions): Promise<Outcome> {
    const prepared = prepareItem(item, truthFor);
    if ('kind' in prepared) return prepared;
    const answers = await Promise.all(
      questions.map(async (question) => {
        const judgement = await judge.ask(question.query(prepared, prompts), signal, options);
        return { judgement, parts: judgement.problem === null ? question.parts(judgement.scores) : {} };
      }),
    );
    const parts: Record<string, number> = {};
    for (const answer of answers) Object.assign(parts, answer.parts);
    const unscored = unscoredOutcome(
      answers.map(({ judgement }) => judgement),
      parts,
    );
    if (unscored !== null) return unscored;
    const found = value(parts);
    if (valuePart !== null) parts[valuePart] = found;
    return { kind: 'scored', value: found, normalised: found / maxScore, parts };
  }

  return { name, score, close: async () => {} };
}
