/** A KL penalty that is taken from the reward, before advantages. */
import { average } from '../core/statistics.js';
import type { Answer, AnsweredPrompt, Policy } from '../policies/policy.js';
import { lacksLogProbs } from './importance.js';

/** Penalties by group and answer, on the reward's own scale. */
export type Penalties = readonly (readonly number[])[];

/**
 * The coefficient times the sum over an answer's actions of log p - log p_start, both under fixed weights: the k1 estimate of the KL of whole answers
 * (Schulman, "Approximating KL Divergence", 2020), whose gradient by way of the reward is that of the KL, which it would not be in the loss. log p is
 * what the sampler told, else that of the weights of now, which are those that sampled.
 */
export async function klPenalties<P, A extends Answer>(
  policy: Pick<Policy<P, A, never>, 'statistics'>,
  groups: readonly AnsweredPrompt<P, A>[],
  coefficient: number,
): Promise<Penalties> {
  const start = await policy.statistics(groups, 'reference', groups);
  const isTold = groups.every(({ answers }) => !answers.some(lacksLogProbs));
  const now = isTold ? null : await policy.statistics(groups, 'current', groups);
  return groups.map(({ answers }, i) =>
    answers.map((answer, g) => {
      const logProbs = now === null ? answer.logProbs : now[i][g].logProbs;
      return coefficient * logProbs.reduce((sum, one, t) => sum + one - start[i][g].logProbs[t], 0);
    }),
  );
}

/** `reward/kl_penalty`: what was taken from a reward on average. */
export function penaltyMetrics(penalties: Penalties): Record<string, number> {
  return { 'reward/kl_penalty': average(penalties.flat()) };
}
