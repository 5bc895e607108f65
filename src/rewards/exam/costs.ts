/** The costs of an exam's judgements, from which those of a run follow. Pure. */
import { average, quantile } from '../../core/statistics.js';
import type { Judgement, Tokens } from '../score/types.js';

export interface ExamCosts {
  /** Mean tokens of a question over all its requests, and the number of `questions` with known tokens. Null if the server reports none. */
  readonly tokens: (Tokens & { readonly questions: number }) | null;
  /** Seconds of a question in its slot, over all its requests. Null if there were no requests. */
  readonly seconds: { readonly median: number; readonly p95: number } | null;
}

/** The costs of an exam. A judgement from the exam's records counts with the costs of its request to the judge, not with those of the lookup. */
export function costsOf(judgements: readonly Judgement[]): ExamCosts {
  const requested = judgements.filter(({ attempts }) => attempts > 0);
  const counted = requested.flatMap(({ tokens }) => (tokens === undefined ? [] : [tokens]));
  const seconds = requested.map(({ latencyMs }) => latencyMs / 1000);
  const tokens =
    counted.length === 0
      ? null
      : {
          prompt: average(counted.map(({ prompt }) => prompt)),
          completion: average(counted.map(({ completion }) => completion)),
          questions: counted.length,
        };
  return {
    tokens,
    seconds: seconds.length === 0 ? null : { median: quantile(seconds, 0.5), p95: quantile(seconds, 0.95) },
  };
}
