/**
 * The expected grade of an edit, as in Edit-R1 (Li et al., "Uniworld-V2", 2025, arXiv 2510.16888). The judge is asked for one digit from 0 to
 * `highestDigit`, and the value is the mean over the probabilities of its first token, r = sum i p(i) / (5 sum p(i)), in [0, 1].
 */
import { parseExpectedDigit, topLogprobs } from '../../judge/first_token.js';
import type { Judge, JudgeMessage } from '../../judge/judge.js';
import { excerpt, plainScores } from '../../judge/parse.js';
import { highestDigit } from '../../judge/prompts.js';
import type { JudgedItem } from '../../score/judged_item.js';
import type { JudgeItem, Outcome, ScoreOptions, ScoreParts } from '../../score/types.js';
import type { Term } from '../term.js';

/** If the digits have less of the probability, the judge was about to answer something else. */
const MIN_COVERAGE = 0.5;

/** A term that asks `judge` one question, whose messages are `messagesOf` an edit. */
export async function expectedDigitTerm(
  name: string,
  judge: Judge,
  messagesOf: (item: JudgedItem) => readonly JudgeMessage[],
): Promise<Term> {
  const { prepareItem, unscoredOutcome } = await import('../../score/judged_item.js');

  async function score(item: JudgeItem, signal?: AbortSignal, options?: ScoreOptions): Promise<Outcome> {
    const prepared = prepareItem(item, null);
    if ('kind' in prepared) return prepared;
    const query = {
      key: `${item.key}/${name}`,
      messages: messagesOf(prepared),
      format: null,
      temperature: 0,
      maxCompletionTokens: 1,
      topLogprobs,
      parse: (text: string) => parseExpectedDigit(text, highestDigit),
    };
    const judgement = await judge.ask(query, signal, options);
    const unscored = unscoredOutcome([judgement], {});
    if (unscored !== null) return unscored;
    const { key, scores, text } = judgement;
    const [expected, coverage] = plainScores(scores);
    const parts: ScoreParts = { [`${name}/expected_digit`]: expected, [`${name}/coverage`]: coverage };
    if (coverage < MIN_COVERAGE) {
      const found = `the digits have ${coverage.toFixed(3)} of the probability, less than ${MIN_COVERAGE}`;
      return { kind: 'unscored', reason: 'unparsable', detail: `${key}: ${found}: ${excerpt(text)}`, parts };
    }
    const value = expected / highestDigit;
    return { kind: 'scored', value, normalised: value, parts };
  }

  return { name, score, close: async () => {} };
}
