/** What an iteration on several ranks, each a process group member inside this process, must have in common with one on a single rank. */
import { beforeAll, describe, expect, it } from 'vitest';
import type { LossSpec } from '../../src/train/policies/losses/table.js';
import type { Statistics } from '../../src/train/policies/policy.js';
import { Learner, type TokenLesson } from '../../src/train/policies/tokens/learner.js';
import type { Metrics } from '../../src/run/metrics.js';
import { sessionOptions } from '../../src/compute/onnx/session.js';
import type { ProcessGroup } from '../../src/core/group/process_group.js';
import { testFolder } from '../support/folder.js';
import { makeSmallWorld, smallSettings, type SmallWorld } from '../recipes/image_edit_tokens/small_world.js';
import { onRanks } from './groups.js';
import { rewardByName, scored, scorerOf, smallTraining } from './small_training.js';

const byName = scorerOf((key) => scored(rewardByName(key)));

function norm(values: Iterable<number>): number {
  let sum = 0;
  for (const x of values) sum += x * x;
  return Math.sqrt(sum);
}

/** Without the seconds, which differ between any two runs. */
export function untimed(metrics: Metrics): Metrics {
  return Object.fromEntries(Object.entries(metrics).filter(([name]) => !/^(time|tokens\/s)/.test(name)));
}

export function expectClose(found: Metrics, expected: Metrics): void {
  expect(Object.keys(found).sort()).toEqual(Object.keys(expected).sort());
  for (const [name, value] of Object.entries(expected)) expect(found[name], name).toBeCloseTo(value, 5);
}

/** Statistics of the pictures are the first rank's alone, which records them. */
function withoutStatistics(metrics: Readonly<Record<string, number>>): Record<string, number> {
  return Object.fromEntries(Object.entries(metrics).filter(([name]) => !name.startsWith('hack/')));
}

interface GradientResult {
  readonly gradients: ReadonlyMap<string, Float32Array>;
  readonly loss: number;
  readonly statistics: readonly (readonly Statistics[])[];
}

/** The tests, at one rank and at each of `sizes`. */
export function sameOnRanks(sizes: readonly number[]): void {
  const root = testFolder('parallel');
  let world: SmallWorld;
  beforeAll(async () => {
    world = await makeSmallWorld(root);
  });

  describe('the gradient of one batch', () => {
    async function gradientOn(size: number, count: number): Promise<GradientResult[]> {
      const settings = smallSettings(world);
      const made = smallTraining(settings, byName);
      await made.training.step(1);
      const groups = made.records[0].groups.slice(0, count).map(({ prompt, answers }, i): TokenLesson => ({
        prompt,
        answers,
        targets: answers.map(({ ids }, g) => ({
          weights: new Float32Array(ids.length).fill(1 / 200),
          advantages: g - i - 0.7,
          reference: { logProbs: new Float32Array(ids.length).fill(-2) },
          old: null,
        })),
      }));
      const results = await onRanks(size, async (group) => {
        const learner = new Learner(made.policy.model, {
          temperature: 1,
          separateVocabularies: true,
          microBatch: 2,
          gradientCheckpointing: false,
          session: sessionOptions(settings.policy.engine),
          peers: group,
        });
        const loss: LossSpec = { policy: 'reinforce', kl: { coefficient: 0.1, estimator: 'k3' } };
        // Leaves its sums in the arrays that the second call writes into, and no arrays on a rank without a micro-batch.
        await learner.learn(groups.slice(0, 1), loss);
        await learner.gradients();
        const report = await learner.learn(groups, loss);
        const gradients = await learner.gradients();
        await learner.dispose();
        return { ...report, gradients };
      });
      await made.training.dispose();
      return results;
    }

    it(`agrees to 1e-6 of its norm at 1 and ${sizes.join(' and ')} ranks, and is the same on each`, async () => {
      const [one] = await gradientOn(1, 3);
      const whole = norm([...one.gradients.values()].flatMap((g) => [...g]));
      expect(whole).toBeGreaterThan(1e-3);
      for (const size of sizes) {
        const ranks = await gradientOn(size, 3);
        for (const { gradients, loss, statistics } of ranks) {
          expect([...gradients.keys()]).toEqual([...one.gradients.keys()]);
          const difference = norm(
            [...one.gradients].flatMap(([name, g]) => [...g].map((x, i) => x - gradients.get(name)![i])),
          );
          expect(difference / whole).toBeLessThan(1e-6);
          expect(loss).toBe(one.loss);
          expect(statistics).toEqual(one.statistics);
          expect(gradients).toEqual(ranks[0].gradients);
        }
      }
    });

    it('needs no micro-batch on every rank', async () => {
      const [one] = await gradientOn(1, 1);
      const ranks = await gradientOn(4, 1);
      // two micro-batches, of which two ranks have one each: the sum of two numbers, in either order
      for (const { gradients } of ranks) expect(gradients).toEqual(one.gradients);
    });
  });

  describe('an iteration of GRPO on several ranks', () => {
    interface Found {
      readonly metrics: Metrics;
      readonly heldOut: Metrics;
      readonly episodes: unknown;
      readonly recorded: unknown;
      readonly checksum: string;
      readonly shown: number;
    }
    async function first(group: ProcessGroup): Promise<Found> {
      const settings = smallSettings(world);
      const track = { ...settings.track, log_episodes_every_n_iterations: 1 };
      const made = smallTraining({ ...settings, track }, byName, group);
      const metrics = untimed(await made.training.step(1));
      const heldOut = untimed(await made.training.evaluate(1));
      await made.training.dispose();
      return {
        metrics,
        heldOut,
        episodes: made.records.map(({ groups, advantages }) => [
          groups.map(({ answers }) => answers.map(({ ids }) => ids)),
          advantages,
        ]),
        recorded: made.records.map(({ kept, outcomes }) => [kept, outcomes]),
        checksum: await made.training.checksum(),
        shown: made.shown.flat().length,
      };
    }

    it(`has the same episodes, records and numbers at 1 and ${sizes.join(' and ')} ranks`, async () => {
      const [one] = await onRanks(1, first);
      for (const size of sizes) {
        const [leader, ...followers] = await onRanks(size, first);
        expect(leader.episodes).toEqual(one.episodes);
        expect(leader.recorded).toEqual(one.recorded);
        expect(leader.shown).toBe(4);
        expectClose(leader.metrics, one.metrics);
        expectClose(leader.heldOut, one.heldOut);
        for (const follower of followers) {
          expect(follower.metrics).toEqual(withoutStatistics(leader.metrics));
          expect(follower.heldOut).toEqual(leader.heldOut);
          expect(follower.checksum).toBe(leader.checksum);
          expect([follower.episodes, follower.shown]).toEqual([[], 0]);
        }
      }
    });
  });
}
