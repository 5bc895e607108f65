import { describe, expect, it } from 'vitest';
import {
  average,
  deviation,
  groupAdvantages,
  standardError,
  type AdvantageOptions,
} from '../../src/train/advantages.js';

const options: AdvantageOptions = { scale: 'std', eps: 1e-4, clip: null, factor: 1 };

describe('group advantages', () => {
  it('are centred and divided by the standard deviation of the population', () => {
    // mean 5, deviations -3 -1 1 3, variance 5
    const [{ advantages, dropped, zeroSpread }] = groupAdvantages([[2, 4, 6, 8]], { ...options, eps: 0 });
    const s = Math.sqrt(5);
    [-3 / s, -1 / s, 1 / s, 3 / s].forEach((a, i) => expect(advantages[i]).toBeCloseTo(a, 12));
    expect([dropped, zeroSpread]).toEqual([false, false]);
  });

  it('give the one winner of eight sqrt(7), and the others -1/sqrt(7)', () => {
    // mean 1.25, variance (8.75^2 + 7 * 1.25^2) / 8 = 10.9375
    const [{ advantages }] = groupAdvantages([[0, 0, 0, 10, 0, 0, 0, 0]], options);
    expect(advantages[3]).toBeCloseTo(8.75 / (Math.sqrt(10.9375) + 1e-4), 12);
    expect(advantages[3]).toBeCloseTo(2.645, 2);
    expect(advantages[0]).toBeCloseTo(-0.37796, 4);
  });

  it('add eps to the standard deviation', () => {
    const [{ advantages }] = groupAdvantages([[1, 3]], { ...options, eps: 1 });
    expect(advantages).toEqual([-0.5, 0.5]);
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
    expect(found[1].advantages).toEqual([null, null, null]);
  });

  it('are zero, not missing, in a group without spread', () => {
    const found = groupAdvantages([[3, 3, 3, null]], options);
    expect(found).toEqual([{ advantages: [0, 0, 0, null], dropped: false, zeroSpread: true }]);
  });

  it('divide by the standard deviation of all scored episodes with global_std', () => {
    // all: 0 2 4 6, mean 3, variance 5
    const found = groupAdvantages(
      [
        [0, 2],
        [4, 6, null],
      ],
      { ...options, scale: 'global_std', eps: 0 },
    );
    const a = 1 / Math.sqrt(5);
    found.forEach(({ advantages }) => {
      expect(advantages[0]).toBeCloseTo(-a, 12);
      expect(advantages[1]).toBeCloseTo(a, 12);
    });
  });

  it('are only centred with scale none', () => {
    expect(groupAdvantages([[1, 2, 6]], { ...options, scale: 'none' })[0].advantages).toEqual([-2, -1, 3]);
  });

  it('are multiplied by the factor, then clipped', () => {
    const found = groupAdvantages([[1, 2, 6]], { ...options, scale: 'none', factor: 0.5, clip: 0.75 });
    expect(found[0].advantages).toEqual([-0.75, -0.5, 0.75]);
  });
});

describe('summaries', () => {
  it('follow their definitions', () => {
    expect(average([1, 2, 6])).toBe(3);
    expect(average([])).toBeNaN();
    expect(deviation([1, 3])).toBe(1);
    // sample deviation of 1, 3 is sqrt(2), over sqrt(2)
    expect(standardError([1, 3])).toBeCloseTo(1, 12);
    expect(standardError([1])).toBeNaN();
  });
});
