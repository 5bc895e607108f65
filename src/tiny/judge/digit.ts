/** The question that is answered with one digit from 0 to 5 and the probability of each digit. */
import type { ChatReply } from './protocol.js';

const HIGHEST_DIGIT = 5;
/** Probability of tokens that are not digits. */
const ELSEWHERE = 0.02;

/**
 * A reply whose expected digit is half of `score` (0 to 10): the two nearest digits share the probability as in linear interpolation. Lists at most
 * `most` alternatives, the likeliest first.
 */
export function digitReply(score: number, most: number): ChatReply {
  const expected = (score / 10) * HIGHEST_DIGIT;
  const low = Math.floor(expected);
  const likely: readonly (readonly [string, number])[] = [
    [String(low), (1 - ELSEWHERE) * (1 - (expected - low))],
    [String(low + 1), (1 - ELSEWHERE) * (expected - low)],
    [' ', ELSEWHERE],
  ];
  const logprobs = likely
    .filter(([, probability]) => probability > 0)
    .sort(([, one], [, other]) => other - one)
    .map(([token, probability]) => ({
      token,
      logprob: Math.log(probability),
      bytes: [...Buffer.from(token)],
    }));
  const [first] = logprobs;
  return {
    content: first.token,
    finishReason: 'length',
    logprobs: { content: [{ ...first, top_logprobs: logprobs.slice(0, most) }] },
  };
}
