/** A judge's answer to a question, before it is formatted as the question asked. */
import { createHash } from 'node:crypto';
import type { Question } from './protocol.js';

export interface Answer {
  /** `list`: a JSON object with a list of scores; `tag`: words, and one score in a tag. */
  readonly form: 'list' | 'tag';
  /** As many as the question asks for, each from 0 to 10. None where the answer is `reasoning` alone. */
  readonly scores: readonly number[];
  readonly reasoning: string;
}

/** The text of an answer when nothing goes wrong. */
export function writeAnswer({ form, scores, reasoning }: Answer): string {
  if (scores.length === 0) return reasoning;
  return form === 'list' ? JSON.stringify({ score: scores, reasoning }) : `${reasoning}\n<score>${scores[0]}</score>`;
}

/**
 * Scores derived from the exact bytes that were sent (SHA-256 over kind, instruction and images), in steps of a tenth. They mean nothing, but two
 * questions that differ in anything get the same scores only by chance (one in 10,000 for two scores), which exposes a client that attaches a reply
 * to the wrong question. No image is decoded, so that a benchmark measures the client and not its judge.
 */
export function digestAnswer({ kind, instruction, images }: Pick<Question, 'kind' | 'instruction' | 'images'>): Answer {
  const hash = createHash('sha256').update(`${kind}\n${instruction}\n`);
  for (const url of images) hash.update(`${url}\n`);
  const digest = hash.digest();
  const score = (at: number): number => (digest.readUInt32BE(at) % 101) / 10;
  const reasoning = `Drawn from what was sent (${digest.toString('hex', 8, 16)}).`;
  return kind === 'ground'
    ? { form: 'tag', scores: [score(0)], reasoning }
    : { form: 'list', scores: [score(0), score(4)], reasoning };
}
