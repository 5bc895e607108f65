/** What every policy must do, wherever it is trained: a suite to run on each. */
import { readdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { RandomStream } from '../../../src/core/random.js';
import type { LossName, LossSpec } from '../../../src/train/policies/losses/table.js';
import type { Advantages, Answer, TrainGroup, Policy } from '../../../src/train/policies/policy.js';
import { writeCheckpoint } from '../../support/checkpoint.js';
import { testFolders } from '../../support/folder.js';

/** A kind of policy under test. */
export interface Subject<P, A extends Answer, H> {
  /** Policies that start from the same weights and keep them. */
  readonly open: () => Policy<P, A, H>;
  /** Two or more. */
  readonly prompts: readonly P[];
  readonly how: H;
  readonly learningRate: number;
  /** By how much log-probabilities of sampling and training may differ. */
  readonly tolerance: number;
  /** Whether the trainer rounds as it likes: then what is sampled after a resume has log-probabilities within the tolerance. */
  readonly rounds?: boolean;
  /** Whether a step takes all it learns at once: a second time is refused. */
  readonly learnsOnce?: boolean;
}

const kl = { coefficient: 0.1 };
const SPECS: Readonly<Record<LossName, LossSpec>> = {
  likelihood: { policy: 'likelihood' },
  reinforce: { policy: 'reinforce', kl },
  ratio: { policy: 'ratio', clip: 0.2, kl },
  cispo: { policy: 'cispo', most: 1.2, kl },
  nft: { policy: 'nft', beta: 1, limit: 2, kl },
};

const norm = (lists: readonly (readonly { readonly logProbs: Float32Array }[])[]): number[] =>
  lists.flatMap((group) => group.flatMap(({ logProbs }) => [...logProbs]));

const withoutNumbers = (answer: Answer): object => ({ ...answer, logProbs: answer.logProbs.length });

export function policyContract<P, A extends Answer, H>(name: string, subject: Subject<P, A, H>): void {
  const { open, prompts, how, learningRate, tolerance, rounds = false, learnsOnce = false } = subject;
  const folders = testFolders('contract');

  const sample = async (policy: Policy<P, A, H>, seed = 'contract'): Promise<A[][]> => {
    await policy.publish?.('current');
    return policy.sample({
      prompts,
      among: prompts,
      answersPerPrompt: 2,
      how,
      weights: 'current',
      random: (p, g) => new RandomStream(seed, p, g),
    });
  };

  /** The answers with something to learn from each action: equal for all of an answer, or as many values as it has actions. */
  async function trainGroupsOf(
    policy: Policy<P, A, H>,
    answers: readonly (readonly A[])[],
    spread: (advantage: number, length: number) => Advantages = (advantage) => advantage,
  ): Promise<TrainGroup<P, A>[]> {
    const groups = prompts.map((prompt, p) => ({ prompt, answers: answers[p] }));
    const [old, reference] = [
      await policy.statistics(groups, 'current', groups, true),
      await policy.statistics(groups, 'reference'),
    ];
    return groups.map((group, p) => ({
      ...group,
      targets: group.answers.map(({ logProbs: { length } }, g) => ({
        weights: new Float32Array(length).fill(1 / 20),
        advantages: spread(g === 0 ? 1 : -0.5, length),
        reference: reference[p][g],
        old: old[p][g],
      })),
    }));
  }

  async function trained(policy: Policy<P, A, H>, loss: LossSpec = SPECS.reinforce): Promise<void> {
    await policy.learn(await trainGroupsOf(policy, await sample(policy)), loss);
    await policy.step(learningRate);
  }

  describe(`the contract of a policy: ${name}`, () => {
    it('draws each answer from its own stream, and reports the log-probabilities that training computes', async () => {
      const policy = open();
      const answers = await sample(policy);
      expect(answers.map((group) => group.length)).toEqual(prompts.map(() => 2));
      expect(await sample(policy)).toEqual(answers);
      expect(await sample(policy, 'another')).not.toEqual(answers);
      const groups = prompts.map((prompt, p) => ({ prompt, answers: answers[p] }));
      const found = norm(await policy.statistics(groups, 'current'));
      expect(found.length).toBeGreaterThan(prompts.length);
      norm(answers).forEach((logProb, i) => expect(Math.abs(found[i] - logProb)).toBeLessThan(tolerance));
      await policy.dispose();
    });

    it('learns by each loss that it claims, from one advantage an answer as from equal ones, and keeps its start', async () => {
      const probe = open();
      await probe.dispose();
      for (const loss of probe.capabilities.losses) {
        const [one, many] = [open(), open()];
        expect(one.steps).toBe(0);
        const answers = await sample(one);
        const start = await one.statistics(await trainGroupsOf(one, answers), 'reference');
        const report = await one.learn(await trainGroupsOf(one, answers), SPECS[loss]);
        const spread = await trainGroupsOf(many, answers, (advantage, length) =>
          new Float32Array(length).fill(advantage),
        );
        expect(await many.learn(spread, SPECS[loss])).toEqual(report);
        expect(Number.isFinite(report.loss)).toBe(true);
        expect(report.statistics.map((group) => group.map(({ logProbs }) => logProbs.length))).toEqual(
          answers.map((group) => group.map(({ logProbs }) => logProbs.length)),
        );
        for (const policy of [one, many]) expect(await policy.step(learningRate)).toMatchObject({ applied: true });
        expect([one.steps, await one.checksum()]).toEqual([1, await many.checksum()]);
        const lessons = await trainGroupsOf(one, answers);
        expect(norm(await one.statistics(lessons, 'current'))).not.toEqual(norm(start));
        expect(await one.statistics(lessons, 'reference')).toEqual(start);
        await Promise.all([one.dispose(), many.dispose()]);
      }
    });

    it('weighs each action by its own advantage', async () => {
      const [alike, apart] = [open(), open()];
      const answers = await sample(alike);
      await alike.learn(await trainGroupsOf(alike, answers), SPECS.reinforce);
      const rising = (advantage: number, length: number): Float32Array =>
        Float32Array.from({ length }, (_, t) => advantage * (t % 2 === 0 ? 1 : -1));
      await apart.learn(await trainGroupsOf(apart, answers, rising), SPECS.reinforce);
      for (const policy of [alike, apart]) await policy.step(learningRate);
      expect(await apart.checksum()).not.toBe(await alike.checksum());
      await Promise.all([alike.dispose(), apart.dispose()]);
    });

    it('adds up what is learned until a step, which needs something', async () => {
      const [whole, parts] = [open(), open()];
      const lessons = await trainGroupsOf(whole, await sample(whole));
      await whole.learn(lessons, SPECS.reinforce, lessons);
      if (learnsOnce) {
        await parts.learn(lessons, SPECS.reinforce, lessons);
        await expect(parts.learn(lessons, SPECS.reinforce, lessons)).rejects.toThrow('averages over all that a step');
      } else for (const lesson of lessons) await parts.learn([lesson], SPECS.reinforce, lessons);
      const [once, added] = [await whole.step(learningRate), await parts.step(learningRate)];
      if (once.gradNorm !== null && added.gradNorm !== null) expect(added.gradNorm / once.gradNorm).toBeCloseTo(1, 4);
      await expect(parts.step(learningRate)).rejects.toThrow();
      await Promise.all([whole.dispose(), parts.dispose()]);
    });

    it('continues from its files to the same bits, and rejects a folder that lacks one', async () => {
      const folder = folders();
      const [straight, resumed] = [open(), open()];
      await trained(straight);
      writeCheckpoint(folder, await straight.files());
      await resumed.restore(folder, straight.steps);
      expect([resumed.steps, await resumed.checksum()]).toEqual([1, await straight.checksum()]);
      for (const policy of [straight, resumed]) await trained(policy, SPECS.ratio);
      expect(await resumed.checksum()).toBe(await straight.checksum());
      const [after, expected] = [await sample(resumed), await sample(straight)];
      if (!rounds) expect(after).toEqual(expected);
      norm(after).forEach((one, i) => expect(Math.abs(one - norm(expected)[i])).toBeLessThan(tolerance));
      expect(after.map((group) => group.map(withoutNumbers))).toEqual(
        expected.map((group) => group.map(withoutNumbers)),
      );
      const weights = readdirSync(folder).filter((file) => /^(policy|adapter_model|remote)\./.test(file));
      expect(weights).toHaveLength(1);
      rmSync(join(folder, weights[0]));
      await expect(resumed.restore(folder, 1)).rejects.toMatchObject({ code: 'checkpoint' });
      await Promise.all([straight.dispose(), resumed.dispose()]);
    });
  });
}
