/** What an exam's judgements took, from which follows what a run's will. Pure. */
import { average, quantile } from '../../core/statistics.js';
import type { Judgement, Tokens } from '../score/types.js';

export interface ExamCosts {
  /** Mean tokens of a question over all its requests, and of how many `questions` they are known; null where the server reports none. */
  readonly tokens: (Tokens & { readonly questions: number }) | null;
  /** Of one question in its slot, over all its requests; null where the judge was asked none. */
  readonly seconds: { readonly median: number; readonly p95: number } | null;
}

/**
 * The costs of an exam. A judgement that is found in the exam's records counts as it was when the judge was asked, not as
 * what finding it took.
 */
export function costsOf(judgements: readonly Judgement[]): ExamCosts {
  const asked = judgements.filter(({ attempts }) => attempts > 0);
  const counted = asked.flatMap(({ tokens }) => (tokens === undefined ? [] : [tokens]));
  const seconds = asked.map(({ latencyMs }) => latencyMs / 1000);
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
