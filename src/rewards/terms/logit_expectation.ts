/**
 * The expected grade, as in Edit-R1 (Li et al., "Uniworld-V2", 2025, arXiv 2510.16888). The judge is asked for one digit from 0 to 5, and
 * the value is the mean over the probabilities of its first token, r = sum i p(i) / (5 sum p(i)), in [0, 1]. One token, no reasoning, and
 * finer grades than digits. It needs a server that gives log-probabilities.
 */
import { z } from 'zod';
import { result } from '../../core/schema/mark.js';
import { parseExpectedDigit, topLogprobs } from '../judge/first_token.js';
import type { Judge, JudgeQuery } from '../judge/judge.js';
import type { JudgedItem } from '../score/judged_item.js';
import { excerpt, plainScores } from '../judge/parse.js';
import { digitPrompt, highestDigit, withInstruction } from '../judge/prompts.js';
import type { Term } from './term.js';
import { termKind } from './term.js';
import type { JudgeItem, Outcome, ScoreOptions, ScoreParts } from '../score/types.js';

/** Minimum total probability of the digits. With less, the judge was about to answer something else. */
const MIN_COVERAGE = 0.5;

function digitQuery(item: JudgedItem): JudgeQuery {
  return {
    key: `${item.key}/logit_expectation`,
    messages: [{ role: 'user', parts: [withInstruction(digitPrompt, item.instruction), item.source, item.edited] }],
    format: null,
    temperature: 0,
    maxCompletionTokens: 1,
    topLogprobs,
    parse: (text) => parseExpectedDigit(text, highestDigit),
  };
}

export const logitExpectation = termKind({
  name: 'logit_expectation',
  description:
    "The judge's expected grade of an edit from 0 to 5, from the probabilities of its first token, divided by 5. The server has to support logprobs, as vLLM does.",
  fields: {
    model: result('The judge model. null means reward.model.', z.string().min(1).nullable().default(null)),
  },
  reads: 'image',
  needs: { judge: true, truth: false, source: true },
  async create({ model }, services): Promise<Term> {
    const { prepareItem, unscoredOutcome } = await import('../score/judged_item.js');
    const judge: Judge = services.judge(model ?? undefined);

    async function score(item: JudgeItem, signal?: AbortSignal, options?: ScoreOptions): Promise<Outcome> {
      const prepared = prepareItem(item, null);
      if ('kind' in prepared) return prepared;
      const judgement = await judge.ask(digitQuery(prepared), signal, options);
      const unscored = unscoredOutcome([judgement], {});
      if (unscored !== null) return unscored;
      const { key, scores, text } = judgement;
      const [expected, coverage] = plainScores(scores);
      const parts: ScoreParts = {
        'logit_expectation/expected_digit': expected,
        'logit_expectation/coverage': coverage,
      };
      if (coverage < MIN_COVERAGE) {
        const found = `the digits have ${coverage.toFixed(3)} of the probability, less than ${MIN_COVERAGE}`;
        return { kind: 'unscored', reason: 'unparsable', detail: `${key}: ${found}: ${excerpt(text)}`, parts };
      }
      const value = expected / highestDigit;
      return { kind: 'scored', value, normalised: value, parts };
    }

    return { name: 'logit_expectation', score, close: async () => {} };
  },
});
