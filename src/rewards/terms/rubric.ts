/**
 * A picture judged by a list of checks: written by the judge from the instruction (and the source), once for each group of answers, or given by the
 * user. The value is the weighted mean of how far each is met; a check that must hold multiplies it, so that an answer which leaves out what
 * was asked for earns nothing for what it left alone.
 */
import { z } from 'zod';
import { result, positive, positiveInteger } from '../../schema/mark.js';
import { maxScore } from '../judge/parse.js';
import { rubricPrompt, scoresQuery, withInstruction } from '../judge/prompts.js';
import type { JudgeImage } from '../judge/images.js';
import type { AnswerGroup, JudgeItem, Judgement, Outcome, ScoreOptions } from '../score/types.js';
import { checksOf, checksQuery, type Check } from './rubric/checks.js';
import { termKind, type Term } from './term.js';

const checkSchema = z.strictObject({
  check: result('One statement about the finished picture that is true or false.', z.string().regex(/\S/)),
  weight: result('Its share, relative to the others.', positive.default(1)),
  must: result('Whether an answer is worthless unless it holds.', z.boolean().default(false)),
});

export const rubric = termKind({
  name: 'rubric',
  description:
    'A list of checks, each answered by the judge about the picture: the weighted share that holds, from 0 to 1, times how far those hold that must. The judge writes the checks from the instruction, or they are given.',
  fields: {
    model: result('The judge model; null means reward.model.', z.string().min(1).nullable().default(null)),
    checks: result(
      'The checks of every picture; null lets the judge write them for each prompt.',
      z.array(checkSchema).min(1).nullable().default(null),
      { allowed: "null, or a list of {check: 'what has to be seen', weight: 1, must: false}" },
    ),
    max_checks: result('The most checks that the judge may write for a prompt.', z.int().min(2).max(20).default(6)),
    max_reply_tokens: result('Longest reply of the judge to each question, in tokens.', positiveInteger.default(500)),
  },
  reads: 'image',
  // All answers of a group are held against the list that is written for it.
  compares: ({ checks }) => checks === null,
  needs: { judge: true, truth: false, source: false },
  asks: () => [],
  questions: ({ checks }, answers) => answers + (checks === null ? 1 : 0),
  async create({ model, checks: given, max_checks: most, max_reply_tokens: room }, services): Promise<Term> {
    const [{ isShowable, whyUnshowable }, { unscoredOutcome }] = await Promise.all([
      import('../judge/images.js'),
      import('../score/judged_item.js'),
    ]);
    const judge = services.judge(model ?? undefined);
    const { images } = services;

    const write = (
      item: JudgeItem,
      source: readonly JudgeImage[],
      signal?: AbortSignal,
      options?: ScoreOptions,
    ): Promise<Judgement> => judge.ask(checksQuery(item, source, most, room), signal, options);
    const byGroup = new WeakMap<AnswerGroup, Promise<Judgement>>();

    /** The question about a group bears the name of its first answer: whoever asks first, its record is the same. */
    function written(
      item: JudgeItem,
      source: readonly JudgeImage[],
      signal?: AbortSignal,
      options?: ScoreOptions,
    ): Promise<Judgement> {
      const group = options?.group;
      if (group === undefined) return write(item, source, signal, options);
      const asked = byGroup.get(group) ?? write(group.answers[0], source, signal, options);
      byGroup.set(group, asked);
      return asked;
    }

    async function score(item: JudgeItem, signal?: AbortSignal, options?: ScoreOptions): Promise<Outcome> {
      const { key, edited } = item;
      if (edited === null || !isShowable(edited)) return { kind: 'zero_by_rule', reason: 'undecodable', parts: {} };
      const problem = item.source === null ? null : whyUnshowable(item.source);
      if (problem !== null) {
        return { kind: 'unscored', reason: 'bad_request', detail: `${key}, source image: ${problem}`, parts: {} };
      }
      const source = item.source === null ? [] : [images.prepare(item.source, `${key}, source image`)];
      let checks: readonly Check[] | null = given;
      if (checks === null) {
        const list = await written(item, source, signal, options);
        const lacking = unscoredOutcome([list], {});
        if (lacking !== null) return lacking;
        checks = checksOf(list.text);
      }
      const text = withInstruction(
        rubricPrompt(
          checks.map(({ check }) => check),
          source.length > 0,
        ),
        item.instruction,
      );
      const shown = [...source, images.prepare(edited, `${key}, edited image`)];
      const judgement = await judge.ask(
        scoresQuery(`${key}/rubric`, text, shown, checks.length, room),
        signal,
        options,
      );
      return unscoredOutcome([judgement], {}) ?? weigh(checks, judgement.scores);
    }

    return { name: 'rubric', score, close: async () => {} };
  },
});

/** The outcome of checks that are met this far, each from 0 to 10. */
function weigh(checks: readonly Check[], scores: readonly number[]): Outcome {
  const met = scores.map((score) => score / maxScore);
  const total = checks.reduce((sum, { weight }) => sum + weight, 0);
  const share = checks.reduce((sum, { weight }, i) => sum + weight * met[i], 0) / total;
  const essential = checks.flatMap(({ must }, i) => (must ? [met[i]] : []));
  const least = Math.min(1, ...essential);
  const value = Math.min(1, share) * least;
  const parts = { 'rubric/value': value, 'rubric/share': share, 'rubric/must': least, 'rubric/checks': checks.length };
  return { kind: 'scored', value, normalised: value, parts };
}
