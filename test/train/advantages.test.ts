import { describe, expect, it } from 'vitest';
import type { Outcome } from '../../src/rewards/score/types.js';
import { groupAdvantages, AdvantageRule, type AdvantageOptions } from '../../src/train/advantages.js';

import { scored, unscored, zero } from './small_training.js';

const options: AdvantageOptions = { scope: 'group', scale: 'std', eps: 1e-4, clip: null, factor: 1 };

describe('group advantages', () => {
  it('are centred and divided by the standard deviation of the population', () => {
    // mean 5, deviations -3 -1 1 3, variance 5
    const [{ advantages, dropped, zeroSpread }] = groupAdvantages([[2, 4, 6, 8]], { ...options, eps: 0 });
    const s = Math.sqrt(5);
    [-3 / s, -1 / s, 1 / s, 3 / s].forEach((a, i) => expect(advantages[i]).toBeCloseTo(a, 12));
    expect([dropped, zeroSpread]).toEqual([false, false]);
  });

  it('leave unscored episodes out of everything', () => {
    const [withNull] = groupAdvantages([[2, null, 4, 6, null, 8]], options);
    const [without] = groupAdvantages([[2, 4, 6, 8]], options);
    expect(withNull.advantages.filter((a) => a !== null)).toEqual(without.advantages);
    expect([withNull.advantages[1], withNull.advantages[4]]).toEqual([null, null]);
  });

  it('drop a group with fewer than two scored episodes', () => {
    const found = groupAdvantages(
      [
        [null, null],
        [null, 5, null],
        [5, 6],
      ],
      options,
    );
    expect(found.map(({ dropped }) => dropped)).toEqual([true, true, false]);
    expect(found[1]).toEqual({ advantages: [null, null, null], dropped: true, zeroSpread: false });
  });

  it('are multiplied by the factor, then clipped', () => {
    const found = groupAdvantages([[1, 2, 6]], { ...options, scale: 'none', factor: 0.5, clip: 0.75 });
    expect(found[0].advantages).toEqual([-0.75, -0.5, 0.75]);
  });
});

describe('the scope of a comparison', () => {
  const groups = [
    [1, 3],
    [5, null],
    [null, null],
  ];

  it('batch takes the mean and the deviation of all scored episodes, and drops only what has no score', () => {
    // mean 3, variance (4 + 0 + 4) / 3
    const s = Math.sqrt(8 / 3);
    const found = groupAdvantages(groups, { ...options, scope: 'batch', eps: 0 });
    expect(found.map(({ dropped }) => dropped)).toEqual([false, false, true]);
    [-2 / s, 0].forEach((a, i) => expect(found[0].advantages[i]).toBeCloseTo(a, 12));
    expect(found[1].advantages[0]).toBeCloseTo(2 / s, 12);
    expect(found[1].advantages[1]).toBeNull();
  });

  it('is divided by what scale says', () => {
    const by = (scale: AdvantageOptions['scale']): number | null =>
      groupAdvantages(groups, { ...options, scope: 'group', scale, eps: 0 })[0].advantages[0];
    expect(by('none')).toBe(-1);
    expect(by('std')).toBe(-1);
    expect(by('global_std')).toBeCloseTo(-1 / Math.sqrt(8 / 3), 12);
    const wide = groupAdvantages(groups, { ...options, scale: 'global_std', eps: 1 })[0].advantages[0];
    expect(wide).toBeCloseTo(-1 / (Math.sqrt(8 / 3) + 1), 12);
  });
});

it('take 0 by rule as a reward of 0', () => {
  const outcomes: Outcome[] = [scored(6), scored(3), zero, unscored];
  const advantage = { scope: 'group', scale: 'std', eps: 1e-4, clip: null } as const;
  const rule = new AdvantageRule({ advantage, reward_scale: 2, drop_zero_spread: false });
  expect(rule.of([outcomes])).toEqual(groupAdvantages([[6, 3, 0, null]], { ...options, factor: 2 }));
});

describe('groups without spread', () => {
  it('are dropped, and no others', () => {
    const reward = (value: number | null): Outcome => (value === null ? unscored : scored(value));
    const groups = [
      [3, 3, null],
      [1, 2, null],
      [null, null, 1],
    ].map((group) => group.map(reward));
    const advantage = { scope: 'group', scale: 'std', eps: 1e-4, clip: null } as const;
    const by = (drop_zero_spread: boolean) =>
      new AdvantageRule({ advantage, reward_scale: 1, drop_zero_spread }).of(groups);
    const [same, different, dropped] = by(true);
    expect(same).toEqual({ advantages: [null, null, null], dropped: true, zeroSpread: true });
    expect([different, dropped]).toEqual(by(false).slice(1));
  });
});
