/** Asks an exam's questions. */
import pLimit from 'p-limit';
import type { AnswerGroup, JudgeItem, Outcome } from '../score/types.js';
import { FIRST_SHOWN } from '../terms/pairwise/tournament.js';
import { itemsOf, type ExamSet } from './cases.js';
import type { ExamReply, RepliedCase } from './findings.js';

export interface ExamOptions {
  /** Number of questions per answer, at least 2, because noise is the difference of two replies. */
  readonly repeats: number;
  readonly score: (item: JudgeItem, signal: AbortSignal, group: AnswerGroup) => Promise<Outcome>;
  /** Cases asked about at once. */
  readonly atOnce: number;
  readonly signal: AbortSignal;
  readonly onCase?: (done: number) => void;
}

/**
 * Asks everything about every case, a few cases at once, so that their images are not all in memory. Raises the error of the set for a case
 * that cannot be read, and the reason of the signal.
 */
export async function examine(set: ExamSet, options: ExamOptions): Promise<RepliedCase[]> {
  const { repeats, score, atOnce, signal, onCase } = options;
  const limit = pLimit(atOnce);
  let done = 0;
  const one = async (index: number): Promise<RepliedCase> => {
    signal.throwIfAborted();
    const exam = await set.at(index);
    const items = await itemsOf(exam, repeats);
    const replies = await Promise.all(
      items.map(async ({ answer, trick, item, group }): Promise<ExamReply> => {
        const outcome = await score(item, signal, group);
        return { answer, trick, ...scoreOf(outcome) };
      }),
    );
    signal.throwIfAborted();
    done += 1;
    onCase?.(done);
    const { name, tricked } = exam;
    return {
      name,
      tricked,
      replies,
      answers: exam.answers.map((answer) => ({ name: answer.name, truth: answer.truth })),
    };
  };
  const failed = new AbortController();
  return Promise.all(
    Array.from({ length: set.length }, (_, index) =>
      limit(async () => {
        failed.signal.throwIfAborted();
        try {
          return await one(index);
        } catch (error) {
          failed.abort(error);
          throw error;
        }
      }),
    ),
  );
}

function scoreOf(outcome: Outcome): Pick<ExamReply, 'score' | 'reason' | 'firstShown'> {
  switch (outcome.kind) {
    case 'scored': {
      const firstShown = Object.entries(outcome.parts).find(([part]) => part.endsWith(`/${FIRST_SHOWN}`))?.[1];
      return { score: outcome.normalised, ...(firstShown === undefined ? {} : { firstShown }) };
    }
    case 'zero_by_rule':
      return { score: 0 };
    case 'unscored':
      return { score: null, reason: outcome.reason };
  }
}
