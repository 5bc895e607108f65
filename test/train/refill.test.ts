/** Groups without spread, and the further prompts that replace them. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { ProcessGroup } from '../../src/core/group/process_group.js';
import type { Outcome } from '../../src/rewards/score/types.js';
import { saveCheckpoint } from '../../src/run/checkpoints.js';
import type { Metrics } from '../../src/run/metrics.js';
import { RunPaths } from '../../src/run/paths.js';
import { promptKey } from '../../src/train/scoring/task.js';
import { AdvantageRule, type Spread } from '../../src/train/advantages.js';
import { refilling, KeptGroups } from '../../src/train/refill.js';
import type { AdvantageSettings } from '../../src/config/schema/algorithm.js';
import { makeSmallWorld, smallSettings, type SmallWorld } from '../recipes/image_edit_tokens/small_world.js';
import { testFolder, testFolders } from '../support/folder.js';
import { onRanks } from './groups.js';
import { untimed } from './on_ranks.js';
import { rewardByName, scored, scorerOf, smallTraining, unscored, zero, type SmallTraining } from './small_training.js';

const advantage = { scope: 'group', scale: 'std', eps: 1e-4, clip: null } as const;
function spreadOf(outcomes: readonly Outcome[], of: AdvantageSettings): Spread {
  return new AdvantageRule({ advantage: of, reward_scale: 1, drop_zero_spread: false }).spread(outcomes);
}

describe('the spread of a group', () => {
  const spread = { dropped: false, zeroSpread: false };
  const none = { dropped: false, zeroSpread: true };

  it.each([
    ['one that is better', [1, 0, 0, 0].map(scored), spread],
    ['one that is better by the least that a number can be', [0.3, 0.3, 0.1 + 0.2].map(scored), spread],
    ['zeros', [0, 0, 0].map(scored), none],
    ['the same', [7, 7, 7].map(scored), none],
    ['the same beside an unscored one', [scored(7), unscored, scored(7)], none],
    ['a zero by rule among scored zeros', [scored(0), zero], none],
    ['a zero by rule among scored ones', [scored(1), zero], spread],
    ['a single scored one', [scored(1), unscored], { dropped: true, zeroSpread: false }],
  ])('of %s', (_, outcomes, expected) => {
    expect(spreadOf(outcomes, advantage)).toMatchObject(expected);
  });

  it('is that of the group, whatever rewards are compared with', () => {
    expect(spreadOf([scored(7), scored(7)], { ...advantage, scope: 'batch' })).toMatchObject(none);
  });
});

describe('the groups that are learned from', () => {
  const [S, O]: Spread[] = [
    { dropped: false, zeroSpread: false },
    { dropped: false, zeroSpread: true },
  ];

  it.each([
    ['all, where nothing is refilled', [3], [S, O, O], [0, 1, 2], 2],
    ['those with spread, and those of the last round', [3, 2, 1], [S, O, O, O, S, O], [0, 4, 5], 1],
    ['those with spread, where all are', [2, 1], [O, S, S], [1, 2], 0],
  ])('are %s', (_, rounds, spreads, expected, unfilled) => {
    const taught = new KeptGroups(rounds, spreads);
    expect(taught.pick(spreads.map((_one, g) => g))).toEqual(expected);
    expect(taught.pick(spreads)).toHaveLength(rounds[0]);
    expect(taught.metrics()).toEqual({
      'group/sampled': spreads.length,
      'group/refilled': spreads.length - rounds[0],
      'group/unfilled': unfilled,
    });
  });

  it('go back to their places, among those that are replaced', () => {
    const taught = new KeptGroups([2, 1], [O, S, S]);
    const made = [1, 2].map((one) => ({ advantages: [one, -one], dropped: false, zeroSpread: false }));
    expect(taught.place(made, 2)).toEqual([{ advantages: [null, null], dropped: true, zeroSpread: true }, ...made]);
  });
});

it('asks as many prompts as groups of all ranks lack spread, and nothing after the last round', async () => {
  const asked = await onRanks(2, async (group) => {
    const draw = async (count: number): Promise<number[]> => new Array<number>(count).fill(0);
    const further = refilling({ rounds: 2, spread: (one) => spreadOf(one, advantage), group, draw });
    const flat = [scored(1), scored(1)];
    const counts: number[] = [];
    for (const own of [group.rank === 0 ? [flat, flat] : [flat], [flat], [flat]]) {
      counts.push((await further(own)).length);
    }
    return counts;
  });
  expect(asked).toEqual([
    [3, 2, 0],
    [3, 2, 0],
  ]);
});

describe('an iteration that is refilled', () => {
  const root = testFolder('refill');
  const folder = testFolders('refilled');
  let world: SmallWorld;
  beforeAll(async () => {
    world = await makeSmallWorld(root);
  });
  const open: SmallTraining[] = [];
  afterAll(() => Promise.all(open.map(({ training }) => training.dispose())));

  /** Groups of these numbers have no spread; `one` of them has one better answer. */
  const lacking = (flat: readonly number[], one: readonly number[] = []) =>
    scorerOf((key) => {
      const [, group, answer] = key.split('/').map(Number);
      if (one.includes(group)) return scored(answer === 0 ? 1 : 0);
      return scored(flat.includes(group) ? 3 : rewardByName(key));
    });

  function make(
    scorer: Parameters<typeof smallTraining>[1],
    rounds: number | null,
    changes: Record<string, Record<string, unknown>> = {},
    group?: ProcessGroup,
  ): SmallTraining {
    const rollout = { refill: rounds === null ? null : { rounds }, ...changes['rollout'] };
    const made = smallTraining(smallSettings(world, { ...changes, rollout }), scorer, group);
    open.push(made);
    return made;
  }

  const learnt = ({ records }: SmallTraining, at = 0): number[] =>
    records[at].advantages.flatMap(({ dropped }, g) => (dropped ? [] : [g]));

  it('replaces exactly the groups without spread, once for each round', async () => {
    const made = make(lacking([0, 2, 3], [1]), 2);
    const metrics = await made.training.step(1);
    const [{ groups, places, kept, advantages }] = made.records;
    expect(groups).toHaveLength(6);
    expect(learnt(made)).toEqual([1, 4, 5]);
    expect((kept ?? []).flat().map(({ key }) => key)).toEqual(
      Array.from({ length: 24 }, (_, i) => `1/${Math.floor(i / 4)}/${i % 4}`),
    );
    expect(advantages[0]).toEqual({ advantages: [null, null, null, null], dropped: true, zeroSpread: true });
    expect(advantages[1].advantages[0]).toBeGreaterThan(1);
    expect(metrics).toMatchObject({
      'group/sampled': 6,
      'group/refilled': 3,
      'group/unfilled': 0,
      'group/used': 3,
      'group/zero_spread': 0.5,
    });
    // Each prompt is that of its place, which is recorded where the key does not say it.
    expect(places.slice(0, 3)).toEqual([null, null, null]);
    for (const [g, place] of places.entries()) {
      const { prompt } = groups[g];
      expect(promptKey(await made.task.prompt(place ?? g))).toBe(promptKey(prompt));
    }
  });

  it('is the iteration that it is without, if all groups have spread', async () => {
    const [plain, refilled] = [make(lacking([]), null), make(lacking([]), 3)];
    const [a, b] = [await plain.training.step(1), await refilled.training.step(1)];
    expect(untimed(b)).toEqual({ ...untimed(a), 'group/sampled': 3, 'group/refilled': 0, 'group/unfilled': 0 });
    expect(await refilled.training.checksum()).toBe(await plain.training.checksum());
  });

  it('learns from what it keeps as if nothing else had been sampled', async () => {
    // The scale of advantages is that of the whole iteration, which replaced groups must not enter.
    const made = make(lacking([0]), 1, { algorithm: { advantage: { scale: 'global_std' } } });
    await made.training.step(1);
    const [{ outcomes, advantages }] = made.records;
    const rewards = outcomes.slice(1).map((group) => group.map((one) => (one.kind === 'scored' ? one.value : NaN)));
    const all = rewards.flat();
    const mean = (values: readonly number[]): number => values.reduce((a, b) => a + b, 0) / values.length;
    const std = Math.sqrt(mean(all.map((r) => (r - mean(all)) ** 2)));
    rewards.forEach((group, g) =>
      group.forEach((reward, i) =>
        expect(advantages[g + 1].advantages[i]).toBeCloseTo((reward - mean(group)) / (std + 1e-4), 9),
      ),
    );
  });

  it('is sampled under one set of weights', async () => {
    const events: string[] = [];
    const settings = smallSettings(world, { rollout: { refill: { rounds: 2 } } });
    const made = smallTraining(settings, lacking([0, 3]), undefined, {
      through: (policy) =>
        Object.assign(policy, {
          publish: async () => void events.push('publishes'),
          sample: ((sample) => async (request: Parameters<typeof sample>[0]) => {
            events.push(`samples ${request.prompts.length}`);
            return sample(request);
          })(policy.sample.bind(policy)),
        }),
    });
    open.push(made);
    await made.training.step(1);
    expect(events).toEqual(['publishes', 'samples 3', 'samples 1', 'samples 1']);
  });

  it('continues from a checkpoint as it would have gone', async () => {
    const scorer = lacking([0, 2, 3]);
    const whole = make(scorer, 2);
    const metrics: Metrics[] = [];
    for (const iteration of [1, 2, 3]) metrics.push(untimed(await whole.training.step(iteration)));
    const [first, second] = [make(scorer, 2), make(scorer, 2)];
    await first.training.step(1);
    const paths = new RunPaths(folder(), 'run');
    saveCheckpoint(paths, 1, await first.training.files(1));
    await second.training.restore(paths.checkpoint(1));
    expect(untimed(await second.training.step(2))).toEqual(metrics[1]);
    expect(untimed(await second.training.step(3))).toEqual(metrics[2]);
    expect(await second.training.checksum()).toBe(await whole.training.checksum());
    expect(second.records.map(({ places }) => places)).toEqual(whole.records.slice(1).map(({ places }) => places));
    expect(new Set(whole.records.map(({ places }) => JSON.stringify(places))).size).toBe(3);
  });

  it('is the same on two ranks, one of which has no part of a round', async () => {
    const on = (size: number) =>
      onRanks(size, async (group) => {
        const made = make(lacking([1, 3]), 2, {}, group);
        const metrics = untimed(await made.training.step(1));
        return { metrics, records: made.records, checksum: await made.training.checksum() };
      });
    const [[one], [leader, follower]] = [await on(1), await on(2)];
    const told = ({ records: [{ groups, outcomes, advantages, kept, places }] }: typeof one) => [
      groups.map(({ prompt, answers }) => [promptKey(prompt), answers.map(({ ids }) => [...ids])]),
      [outcomes, advantages, kept, places],
    ];
    expect(one.records[0].groups).toHaveLength(5);
    expect(told(leader)).toEqual(told(one));
    expect(follower.checksum).toBe(leader.checksum);
    for (const name of ['reward/mean', 'group/sampled', 'group/unfilled', 'group/used', 'group/zero_spread']) {
      expect([leader.metrics[name], follower.metrics[name]], name).toEqual([one.metrics[name], one.metrics[name]]);
    }
  });
});
