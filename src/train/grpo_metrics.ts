/** What an iteration of GRPO tells about itself, as numbers: outcomes, answers and the update. Pure functions. */
import type { TokenAnswer } from '../policies/tokens/batch.js';
import type { LearningGroup, TokenStatistics } from '../policies/tokens/learner.js';
import type { Outcome } from '../rewards/types.js';
import { average, type GroupAdvantages } from './advantages.js';
import { rewardOf, scoreParts } from './held_out.js';

/** `reward/mean`, the mean of every part, the share that is zero by rule, and how many are unscored for each reason. */
export function describeOutcomes(outcomes: readonly Outcome[]): Record<string, number> {
  const rewards = outcomes.map(rewardOf).filter((reward) => reward !== null);
  const metrics: Record<string, number> = { 'reward/mean': average(rewards) };
  for (const [part, values] of scoreParts(outcomes)) metrics[`reward/${part}`] = average(values);
  metrics['reward/zero_by_rule'] = outcomes.filter(({ kind }) => kind === 'zero_by_rule').length / outcomes.length;
  for (const outcome of outcomes) {
    if (outcome.kind !== 'unscored') continue;
    const name = `reward/unscored/${outcome.reason}`;
    metrics[name] = (metrics[name] ?? 0) + 1;
  }
  return metrics;
}

/** Length of the answers, how many did not end by themselves, and how many groups teach nothing or were dropped. */
export function describeEpisodes(
  groups: readonly { readonly answers: readonly TokenAnswer[] }[],
  advantages: readonly GroupAdvantages[],
): Record<string, number> {
  const answers = groups.flatMap((group) => group.answers);
  return {
    'episode/length': average(answers.map(({ ids }) => ids.length)),
    'episode/non_stop_rate': average(answers.map(({ finished }) => (finished ? 0 : 1))),
    'group/zero_spread': average(advantages.map(({ zeroSpread }) => (zeroSpread ? 1 : 0))),
    'group/dropped': average(advantages.map(({ dropped }) => (dropped ? 1 : 0))),
  };
}

/**
 * Over the tokens that carry the loss, weighted as there: KL to the reference (k3, Schulman, "Approximating KL Divergence", 2020) and entropy,
 * in nats per token; and the largest difference between the log-probabilities of rollout and training graph.
 */
export function describeUpdate(
  learning: readonly LearningGroup[],
  statistics: readonly (readonly TokenStatistics[])[],
  used: readonly { readonly answers: readonly TokenAnswer[] }[],
): { 'policy/kl': number; 'policy/entropy': number; 'policy/rollout_mismatch': number } {
  let [kl, entropy, weight, mismatch] = [0, 0, 0, 0];
  learning.forEach(({ targets }, i) =>
    targets.forEach(({ weights, reference }, g) => {
      const { logProbs, entropy: entropies } = statistics[i][g];
      weights.forEach((w, t) => {
        const d = reference![t] - logProbs[t];
        kl += w * (Math.exp(d) - d - 1);
        entropy += w * entropies[t];
        weight += w;
        mismatch = Math.max(mismatch, Math.abs(logProbs[t] - used[i].answers[g].logProbs[t]));
      });
    }),
  );
  return { 'policy/kl': kl / weight, 'policy/entropy': entropy / weight, 'policy/rollout_mismatch': mismatch };
}
