/** What a group's answers are compared with that no policy gave. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { ProcessGroup } from '../../src/group/process_group.js';
import type { Outcome } from '../../src/rewards/score/types.js';
import { originalMetrics, withOriginals } from '../../src/train/originals.js';
import { makeSmallWorld, smallSettings, type SmallWorld } from '../recipes/image_edit_tokens/small_world.js';
import { testFolder } from '../support/folder.js';
import { onRanks } from './groups.js';
import { untimed } from './on_ranks.js';
import { rewardByName, scored, scorerOf, smallTraining, unscored, zero, type SmallTraining } from './small_training.js';

describe('originals', () => {
  it('count where an answer is scored, if only by a rule', () => {
    expect(withOriginals([scored(1), unscored], [scored(2)])).toEqual([scored(1), unscored, scored(2)]);
    expect(withOriginals([zero], [scored(2)])).toEqual([zero, scored(2)]);
    expect(withOriginals([unscored, unscored], [scored(2), scored(3)])).toEqual([unscored, unscored]);
  });

  it('are told with what answers add to them', () => {
    expect(originalMetrics([[scored(3), unscored, zero], [scored(9)]], [[scored(1), scored(2)], [scored(5)]])).toEqual({
      'original/mean': 8 / 3,
      'original/gain': (1.5 - 1.5 + 9 - 5) / 2,
    });
    expect(originalMetrics([[unscored], [scored(1)]], [[scored(4)], [unscored]])).toEqual({ 'original/mean': 4 });
    expect(originalMetrics([[scored(1)]], [[unscored]])).toEqual({});
  });
});

describe('training with originals', () => {
  const root = testFolder('originals');
  let world: SmallWorld;
  beforeAll(async () => {
    world = await makeSmallWorld(root);
  });
  const open: SmallTraining[] = [];
  afterAll(() => Promise.all(open.map(({ training }) => training.dispose())));

  /** Groups have 4 answers, so that the names of originals are 4 and on; `flat` gives all answers of these groups 3. */
  const scorer = (original: (group: number, i: number) => Outcome, flat: readonly number[] = []) =>
    scorerOf((key) => {
      const [, group, i] = key.split('/').map(Number);
      if (i >= 4) return original(group, i - 4);
      return scored(flat.includes(group) ? 3 : rewardByName(key));
    });

  function make(
    by: Parameters<typeof smallTraining>[1],
    originals: number,
    changes: Record<string, Record<string, unknown>> = {},
    group?: ProcessGroup,
  ): SmallTraining {
    const made = smallTraining(smallSettings(world, changes), by, group, { originals });
    open.push(made);
    return made;
  }

  const valuesOf = (outcomes: readonly Outcome[]): number[] =>
    outcomes.map((one) => (one.kind === 'scored' ? one.value : NaN));

  it('count in the mean and the deviation that answers are compared with', async () => {
    const made = make(
      scorer((group, i) => scored(2 * group + i)),
      2,
    );
    await made.training.step(1);
    const [{ groups, outcomes, advantages, originals }] = made.records;
    expect(groups.map(({ answers }) => answers.length)).toEqual([4, 4, 4]);
    outcomes.forEach((own, g) => {
      const all = [...valuesOf(own), 2 * g, 2 * g + 1];
      expect(valuesOf(originals.outcomes[g])).toEqual(all.slice(4));
      const mean = all.reduce((a, b) => a + b, 0) / 6;
      const std = Math.sqrt(all.reduce((sum, r) => sum + (r - mean) ** 2, 0) / 6);
      expect(advantages[g].advantages).toHaveLength(4);
      valuesOf(own).forEach((reward, i) =>
        expect(advantages[g].advantages[i]).toBeCloseTo((reward - mean) / (std + 1e-4), 9),
      );
    });
  });

  it('carry no loss, are not among the answers that are told of, and are recorded behind them', async () => {
    // An original at the mean of its group moves nothing where differences are not scaled.
    const changes = { algorithm: { advantage: { scale: 'none' } } };
    const plain = make(
      scorer(() => scored(0)),
      0,
      changes,
    );
    const expected = untimed(await plain.training.step(1));
    const means = plain.records[0].outcomes.map((own) => valuesOf(own).reduce((a, b) => a + b, 0) / 4);
    const made = make(
      scorer((group) => scored(means[group])),
      1,
      changes,
    );
    const { 'original/mean': mean, 'original/gain': gain, ...rest } = untimed(await made.training.step(1));
    expect(Object.keys(rest).sort()).toEqual(Object.keys(expected).sort());
    for (const [name, value] of Object.entries(expected)) expect(rest[name], name).toBeCloseTo(Number(value), 6);
    expect(mean).toBeCloseTo(means.reduce((a, b) => a + b, 0) / 3, 9);
    expect(gain).toBeCloseTo(0, 9);
    const [{ originals, kept }] = made.records;
    expect(originals.kept.flat().map(({ key }) => key)).toEqual(['1/0/4', '1/1/4', '1/2/4']);
    expect(kept.flat().map(({ key }) => key)).toEqual(plain.records[0].kept.flat().map(({ key }) => key));
  });

  it('make a group teach whose answers are all alike', async () => {
    const made = make(
      scorer((group) => scored(group === 0 ? 5 : group === 1 ? 1 : 3), [0, 1, 2]),
      1,
      { rollout: { refill: { rounds: 1 } } },
    );
    const metrics = await made.training.step(1);
    const [{ advantages }] = made.records;
    // The third has no spread with its original either, and is replaced.
    expect(metrics).toMatchObject({ 'group/sampled': 4, 'group/refilled': 1, 'group/zero_spread': 0.25 });
    expect(advantages[0].advantages.every((one) => one !== null && one < 0)).toBe(true);
    expect(advantages[1].advantages.every((one) => one !== null && one > 0)).toBe(true);
    expect(advantages[2]).toEqual({ advantages: [null, null, null, null], dropped: true, zeroSpread: true });
    expect(metrics['original/gain']).toBeDefined();
  });

  it('teach nothing where no answer is scored', async () => {
    const made = make(
      scorerOf((key) => {
        const [, group, i] = key.split('/').map(Number);
        return group === 0 && i < 4 ? unscored : scored(rewardByName(key));
      }),
      2,
      { rollout: { refill: { rounds: 1 } } },
    );
    expect(await made.training.step(1)).toMatchObject({ 'group/sampled': 4, 'group/refilled': 1 });
  });

  it('are the same on two ranks', async () => {
    const by = scorer((group, i) => scored(group + i));
    const on = (size: number) =>
      onRanks(size, async (group) => {
        const made = make(by, 2, {}, group);
        const metrics = untimed(await made.training.step(1));
        return { metrics, records: made.records, checksum: await made.training.checksum() };
      });
    const [[one], [leader, follower]] = [await on(1), await on(2)];
    const told = ({ records: [{ outcomes, advantages, originals }] }: typeof one) => [outcomes, advantages, originals];
    expect(told(leader)).toEqual(told(one));
    expect(follower.checksum).toBe(leader.checksum);
    for (const name of ['reward/mean', 'original/mean', 'original/gain', 'group/used']) {
      expect([leader.metrics[name], follower.metrics[name]], name).toEqual([one.metrics[name], one.metrics[name]]);
    }
  });
});
