/**
 * Originals: what a group has beside its answers that no policy gave, such as the picture of the user's own words (PromptRL, arXiv 2602.01382). Answers are
 * compared with them, and nothing is learnt from them.
 */
import { average } from '../core/statistics.js';
import type { Outcome } from '../rewards/score/types.js';
import { rewardOf } from '../scoring/outcomes.js';
import type { GroupAdvantages } from './advantages.js';

/** What a group's answers are compared within: themselves and their originals. Where no answer is scored there is nothing to compare. */
export function withOriginals(answers: readonly Outcome[], originals: readonly Outcome[]): readonly Outcome[] {
  return answers.some((outcome) => rewardOf(outcome) !== null) ? [...answers, ...originals] : answers;
}

/** The advantages of the answers alone, of which a group has `count`. */
export function ofAnswers(group: GroupAdvantages, count: number): GroupAdvantages {
  return { ...group, advantages: group.advantages.slice(0, count) };
}

/**
 * `original/mean`, the mean reward of the originals; and `original/gain`, by how much the answers to a prompt earn more than its originals, on average
 * over the prompts where both were scored. Either is absent where nothing was.
 *
 * @param answers outcomes by group
 */
export function originalMetrics(
  answers: readonly (readonly Outcome[])[],
  originals: readonly (readonly Outcome[])[],
): Record<string, number> {
  const rewards = (outcomes: readonly Outcome[]): number[] => outcomes.map(rewardOf).filter((one) => one !== null);
  const all = originals.flatMap(rewards);
  const gains = answers.flatMap((group, g) => {
    const [own, without] = [rewards(group), rewards(originals[g])];
    return own.length === 0 || without.length === 0 ? [] : [average(own) - average(without)];
  });
  return {
    ...(all.length === 0 ? {} : { 'original/mean': average(all) }),
    ...(gains.length === 0 ? {} : { 'original/gain': average(gains) }),
  };
}
