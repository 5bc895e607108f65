/** Terms that ask the same question about an item at the same time share its answer. */
import type { Judge, JudgeQuery } from './judge.js';
import type { Judgement, ScoreOptions } from '../score/types.js';

interface PendingQuestion {
  readonly signal: AbortSignal | undefined;
  readonly askAgain: boolean;
  readonly answer: Promise<Judgement>;
}

/** A judge that passes a question on once, however many ask it while it is under way with the same signal. */
export function sharedQuestions(judge: Judge): Judge {
  const underWay = new Map<string, PendingQuestion>();
  return {
    ask(query: JudgeQuery, signal?: AbortSignal, options?: ScoreOptions): Promise<Judgement> {
      const identity = identityOf(query);
      const askAgain = options?.askAgain === true;
      const same = underWay.get(identity);
      if (same?.signal === signal && same?.askAgain === askAgain) return same.answer;
      const asked: PendingQuestion = { signal, askAgain, answer: judge.ask(query, signal, options) };
      underWay.set(identity, asked);
      return asked.answer.finally(() => {
        if (underWay.get(identity) === asked) underWay.delete(identity);
      });
    },
  };
}

/** What makes two queries the same question: all that the judge sees of them. */
function identityOf({ key, messages, format, temperature, maxCompletionTokens, topLogprobs }: JudgeQuery): string {
  const seen = messages.map(({ role, parts }) => [
    role,
    ...parts.map((part) => (typeof part === 'string' ? { text: part } : part.digest)),
  ]);
  return JSON.stringify([key, seen, format?.name ?? null, temperature, maxCompletionTokens, topLogprobs ?? 0]);
}
