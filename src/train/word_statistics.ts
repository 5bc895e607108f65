/**
 * What hack alarms watch in answers in words: repetition, copies of the prompt, the token limit, and a second measure that does not follow the
 * reward.
 */
import { average } from '../core/statistics.js';
import type { Answer } from '../policies/policy.js';
import type { JudgeItem } from '../rewards/score/types.js';
import { wordsOf } from '../rewards/terms/word_overlap.js';
import type { Metrics } from '../run/metrics.js';

/** Length of the word sequences that count as repeated or copied: shorter ones recur in honest answers. */
const ROW = 3;

/** Statistics of one answer in words. */
export interface WordStatistics {
  /** Share of its three-word sequences that occur earlier in it, in [0, 1). */
  readonly repeated: number;
  /** Share of its three-word sequences that occur in the prompt, in [0, 1]. */
  readonly copied: number;
}

/** Measures one answer; null if it has no words of its own, or fewer than three. */
export function measureWords({
  answer,
  instruction,
}: Pick<JudgeItem, 'answer' | 'instruction'>): WordStatistics | null {
  const rows = rowsOf(answer ?? '');
  if (rows.length === 0) return null;
  const asked = new Set(rowsOf(instruction));
  return {
    repeated: 1 - new Set(rows).size / rows.length,
    copied: rows.filter((row) => asked.has(row)).length / rows.length,
  };
}

function rowsOf(text: string): string[] {
  const words = wordsOf(text);
  return words.slice(ROW - 1).map((_, i) => words.slice(i, i + ROW).join(' '));
}

/**
 * Metrics `hack/repeated_words` and `hack/prompt_copy`, means over the measured answers, and `hack/at_token_limit`, the share of all answers that did
 * not end by themselves; empty if no answer is in words.
 */
export function wordMetrics(
  groups: readonly { readonly answers: readonly Pick<Answer, 'finished'>[] }[],
  words: readonly (readonly (WordStatistics | null)[])[],
): Record<string, number> {
  const measured = words.flat().filter((one) => one !== null);
  if (measured.length === 0) return {};
  const answers = groups.flatMap((group) => group.answers);
  return {
    'hack/repeated_words': average(measured.map(({ repeated }) => repeated)),
    'hack/prompt_copy': average(measured.map(({ copied }) => copied)),
    'hack/at_token_limit': average(answers.map(({ finished }) => (finished ? 0 : 1))),
  };
}

/** A reward's or a term's name and the highest value of its scale, whose lowest is 0. */
export interface MeasuredScale {
  readonly name: string;
  readonly most: number;
}

/**
 * Metric `hack/second_gap`: how much higher the training reward is than the terms recorded beside it, all on the scale from 0 to 1; the largest gap.
 * It rises when the reward rises while a second measure stays or falls. Left out if either is missing.
 *
 * @param metrics an iteration's, with `reward/mean` and `reward/<term>/value` or `/overall`
 */
export function secondGapMetrics(
  metrics: Metrics,
  { most, besides }: { readonly most: number; readonly besides: readonly MeasuredScale[] },
): Record<string, number> {
  const reward = metrics['reward/mean'] as number | undefined;
  const gaps = besides.flatMap((term) => {
    const value = (metrics[`reward/${term.name}/value`] ?? metrics[`reward/${term.name}/overall`]) as
      number | undefined;
    return value === undefined || reward === undefined ? [] : [reward / most - value / term.most];
  });
  return gaps.length === 0 ? {} : { 'hack/second_gap': Math.max(...gaps) };
}
