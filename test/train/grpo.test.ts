import { describe, expect, it } from 'vitest';
import type { Outcome } from '../../src/rewards/score/types.js';
import { type EditPrompt } from '../../src/recipes/image_edit_tokens/task.js';
import type { TokenAnswer } from '../../src/train/policies/tokens/batch.js';
import type { Scorer } from '../../src/train/scoring/scorer.js';
import {
  rewardByName,
  scored,
  scorerOf,
  unscored,
  zero,
  type IterationRecord,
  type SmallTraining,
  smallTrainings,
} from './small_training.js';

const make = smallTrainings('grpo-');

/**
 * The loss of a first iteration from what was recorded of it: the policy still is its start, so KL is 0, and the rollout's
 * log-probabilities are the policy's. `trained` says which tokens carry loss.
 */
function expectedLoss(
  { groups, advantages }: IterationRecord<EditPrompt, TokenAnswer>,
  trained: (id: number) => boolean = () => true,
): number {
  let tokens = 0;
  let sum = 0;
  groups.forEach(({ answers }, i) =>
    answers.forEach(({ ids, logProbs }, g) => {
      const advantage = advantages[i].advantages[g];
      if (advantage === null) return;
      ids.forEach((id, t) => {
        if (!trained(id)) return;
        tokens += 1;
        sum -= advantage * logProbs[t];
      });
    }),
  );
  return sum / tokens;
}

describe('an iteration of GRPO', () => {
  const all = scorerOf((key) => scored(rewardByName(key)));

  it('divides the loss by all trained tokens of the iteration', async () => {
    const made = make(all);
    const metrics = await made.training.step(1);
    const [record] = made.records;
    expect(metrics['policy/loss']).toBeCloseTo(expectedLoss(record), 5);
    expect(Math.abs(metrics['policy/loss'])).toBeGreaterThan(1e-3);
    expect(metrics['policy/rollout_mismatch']).toBeLessThan(1e-4);
    expect(metrics['policy/kl']).toBeCloseTo(0, 6);
    expect(made.alarms).toEqual([]);
    expect(record.groups.map(({ answers }) => answers.length)).toEqual([4, 4, 4]);
    const rewards = record.outcomes.flat().map((outcome) => (outcome.kind === 'scored' ? outcome.value : NaN));
    expect(metrics['reward/mean']).toBeCloseTo(rewards.reduce((a, b) => a + b) / 12, 9);
    expect(metrics['reward/a']).toBe(metrics['reward/mean']);
    // after a step the policy has moved away from its start
    expect((await made.training.step(2))['policy/kl']).toBeGreaterThan(1e-5);
  });

  it('gives unscored episodes no weight, and drops groups with fewer than two scores', async () => {
    const made = make(
      scorerOf((key): Outcome => {
        const [, group, answer] = key.split('/');
        if (group === '0' && answer !== '3') return unscored;
        if (group === '1' && answer === '1') return unscored;
        return group === '2' && answer === '0' ? zero : scored(rewardByName(key));
      }),
    );
    const metrics = await made.training.step(1);
    expect(metrics['policy/loss']).toBeCloseTo(expectedLoss(made.records[0]), 5);
    expect(metrics['group/used']).toBe(2);
    expect(metrics['group/dropped']).toBeCloseTo(1 / 3, 9);
    expect(metrics['reward/unscored/timeout']).toBe(4);
    expect(metrics['reward/zero_by_rule']).toBeCloseTo(1 / 12, 9);
  });

  it('leaves the policy as it is if nothing is scored, and reports it', async () => {
    const made = make(scorerOf(() => unscored));
    const before = [...made.policy.model.weights].map(([, { data }]) => data.slice());
    const metrics = await made.training.step(1);
    expect([...made.policy.model.weights].map(([, { data }]) => data)).toEqual(before);
    expect(metrics['group/used']).toBe(0);
    expect(made.alarms).toHaveLength(1);
  });

  it.each([
    ['text', 1, 'text'],
    ['text', 2, 'text'],
    ['text', 3, 'vision'],
    ['text', 4, 'text'],
    ['vision', 1, 'vision'],
    ['vision', 3, 'all'],
  ] as const)('in a cycle of %s for 2 of 3 iterations trains in iteration %d: %s', async (tokens, iteration, part) => {
    const made = make(all, { algorithm: { train_tokens: { tokens, cycle_steps: 3, steps: 2 } } });
    const metrics = await made.training.step(iteration);
    const { space } = made.task;
    const trained = (id: number): boolean => part === 'all' || space.isVision(id) === (part === 'vision');
    expect(metrics['policy/loss']).toBeCloseTo(expectedLoss(made.records[0], trained), 5);
    expect(made.records[0].groups[0].answers[0].ids.some((id) => !trained(id))).toBe(part !== 'all');
  });

  it('comes to the same in chunks, each put to the judge before the next is sampled', async () => {
    const begun: number[] = [];
    const counting: Scorer = {
      ...all,
      begin: (items) => {
        begun.push(items.length);
        return all.begin(items);
      },
    };
    const whole = make(all);
    const chunked = make(counting, { rollout: { chunk_groups: 2 } });
    const [a, b] = [await whole.training.step(1), await chunked.training.step(1)];
    expect(begun).toEqual([8, 4]);
    expect(b['policy/loss']).toBeCloseTo(a['policy/loss'], 6);
    const ids = ({ records }: SmallTraining): number[][] =>
      records[0].groups.flatMap(({ answers }) => answers.map((answer) => [...answer.ids]));
    expect(ids(chunked)).toEqual(ids(whole));
  });
});
