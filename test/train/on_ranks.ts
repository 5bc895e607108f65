/** What an iteration on several ranks, each a process group member inside this process, must have in common with one on a single rank. */
import { beforeAll, describe, expect, it } from 'vitest';
import type { Metrics } from '../../src/run/metrics.js';
import type { ProcessGroup } from '../../src/core/group/process_group.js';
import { testFolder } from '../support/folder.js';
import { makeSmallWorld, smallSettings, type SmallWorld } from '../recipes/image_edit_tokens/small_world.js';
import { onRanks } from './groups.js';
import { rewardByName, scored, scorerOf, smallTraining } from './small_training.js';

const byName = scorerOf((key) => scored(rewardByName(key)));

/** Without the seconds, which differ between any two runs. */
export function untimed(metrics: Metrics): Metrics {
  return Object.fromEntries(Object.entries(metrics).filter(([name]) => !/^(time|tokens\/s)/.test(name)));
}

function expectClose(found: Metrics, expected: Metrics): void {
  expect(Object.keys(found).sort()).toEqual(Object.keys(expected).sort());
  for (const [name, value] of Object.entries(expected)) expect(found[name], name).toBeCloseTo(value, 5);
}

/** Statistics of the images are the first rank's alone, which records them. */
function withoutStatistics(metrics: Readonly<Record<string, number>>): Record<string, number> {
  return Object.fromEntries(Object.entries(metrics).filter(([name]) => !name.startsWith('hack/')));
}

/** The tests, at one rank and at each of `sizes`. */
export function sameOnRanks(sizes: readonly number[]): void {
  const root = testFolder('parallel');
  let world: SmallWorld;
  beforeAll(async () => {
    world = await makeSmallWorld(root);
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
