/** The task of several benches: a format without rules, and random answers to random prompts. */
import type { RandomStream } from '../../src/core/random.js';
import { unrestricted, type TokenFormat } from '../../src/models/tokenizer/format.js';
import type { TokenTrainGroup } from '../../src/train/policies/tokens/learner.js';

/** A format of the given number of tokens that allows all of them. `ends` are the tokens that end an answer. */
export function plainFormat(size: number, ends: readonly number[] = [2]): TokenFormat {
  return { size, ends: new Set(ends), secondPart: null, tokenizerFiles: {}, start: () => unrestricted };
}

/** The sizes of random lessons. */
export interface LessonSizes {
  readonly prompts: number;
  /** To each prompt. */
  readonly answers: number;
  readonly promptTokens: number;
  /** Tokens of answer `i` of all. */
  readonly answerTokens: (i: number) => number;
  /** The first of the tokens that are drawn, and the one behind the last. */
  readonly tokens: readonly [number, number];
}

/** Lessons with these sizes, whose loss is a mean over tokens. */
export function randomLessons(stream: RandomStream, sizes: LessonSizes): TokenTrainGroup[] {
  const { prompts, answers, promptTokens, answerTokens } = sizes;
  const [from, end] = sizes.tokens;
  const tokens = (length: number): number[] => Array.from({ length }, () => from + stream.integer(end - from));
  const lengths = Array.from({ length: prompts * answers }, (_, i) => answerTokens(i));
  const all = lengths.reduce((sum, length) => sum + length, 0);
  return Array.from({ length: prompts }, (_, p): TokenTrainGroup => {
    const own = lengths.slice(p * answers, (p + 1) * answers);
    return {
      prompt: { tokens: { ids: tokens(promptTokens) } },
      answers: own.map((length) => ({ ids: Int32Array.from(tokens(length)) })),
      targets: own.map((length) => ({
        weights: new Float32Array(length).fill(1 / all),
        advantages: stream.normal(),
        reference: null,
        old: null,
      })),
    };
  });
}
