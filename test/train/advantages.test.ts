import { describe, expect, it } from 'vitest';
import type { Outcome } from '../../src/rewards/score/types.js';
import {
  groupAdvantages,
  outcomeAdvantages,
  perTermAdvantages,
  AdvantageRule,
  type AdvantageOptions,
} from '../../src/train/advantages.js';

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

describe('advantages per term', () => {
  const exact = { eps: 0, clip: null, factor: 1 };

  it('normalise each term in its group, weigh and add, and divide by the standard deviation of the iteration', () => {
    // Group 1: term 1 is 0 1, so -1 1; term 2 is 0.5 0.1, so 1 -1. Sums with 0.75 and 0.25: -0.5 0.5.
    // Group 2: term 1 is 0 1, so -1 1; term 2 is 0.2 0.3, so -1 1. Sums: -1 1.
    const groups = [
      [
        [0, 0.5],
        [1, 0.1],
      ],
      [
        [0, 0.2],
        [1, 0.3],
      ],
    ];
    // Over the iteration: variance (0.25 + 0.25 + 1 + 1) / 4 = 0.625
    const s = Math.sqrt(0.625);
    const found = perTermAdvantages(groups, [0.75, 0.25], exact);
    const expected = [
      [-0.5 / s, 0.5 / s],
      [-1 / s, 1 / s],
    ];
    found.forEach(({ advantages, dropped, zeroSpread }, g) => {
      advantages.forEach((a, i) => expect(a).toBeCloseTo(expected[g][i], 12));
      expect([dropped, zeroSpread]).toEqual([false, false]);
    });
  });

  it('leave unscored episodes out, and drop groups with fewer than two scored ones', () => {
    const groups = [
      [[0, 0.5], null, [1, 0.1]],
      [[1, 1], null, null],
      [null, null, null],
    ];
    const found = perTermAdvantages(groups, [0.75, 0.25], exact);
    expect(found.map(({ dropped }) => dropped)).toEqual([false, true, true]);
    // The one group that is left: sums -0.5 and 0.5, whose deviation is 0.5.
    expect(found[0].advantages).toEqual([-1, null, 1]);
    expect(found[1].advantages).toEqual([null, null, null]);
  });

  it('have no spread where no term has any; one term without spread adds nothing', () => {
    const flat = perTermAdvantages(
      [
        [
          [1, 0.5],
          [1, 0.5],
        ],
      ],
      [0.5, 0.5],
      { ...exact, eps: 1e-4 },
    );
    expect(flat).toEqual([{ advantages: [0, 0], dropped: false, zeroSpread: true }]);
    const [{ advantages, zeroSpread }] = perTermAdvantages(
      [
        [
          [1, 0.2],
          [1, 0.4],
        ],
      ],
      [0.5, 0.5],
      {
        ...exact,
        eps: 1e-9,
      },
    );
    expect(zeroSpread).toBe(false);
    expect(advantages[1]).toBeCloseTo(1, 6);
  });

  it('are limited once they are added up, not term by term', () => {
    // The one winner of eight has an advantage of sqrt(7) in the first term.
    const values = [Array.from({ length: 8 }, (_, i) => [Number(i === 3), i])];
    const [free] = perTermAdvantages(values, [0.5, 0.5], exact);
    const [limited] = perTermAdvantages(values, [0.5, 0.5], { ...exact, clip: 1.5 });
    expect(limited.advantages).toEqual(free.advantages.map((a) => Math.max(-1.5, Math.min(1.5, a ?? NaN))));
  });
});

describe('the advantages of outcomes', () => {
  const scored = (value: number, ...normalised: number[]): Outcome => {
    const terms = normalised.map((one, k) => ({ name: `t${k}`, weight: 0.5, normalised: one }));
    return { kind: 'scored', value, normalised: value / 10, parts: {}, terms };
  };
  const zero: Outcome = { kind: 'zero_by_rule', reason: 'undecodable', parts: {} };
  const unscored: Outcome = { kind: 'unscored', reason: 'timeout', detail: '', parts: {} };
  const outcomes = [[scored(6, 1, 0.5), scored(3, 0.5, 0), zero, unscored]];
  const settings = { scope: 'group', scale: 'std', eps: 1e-4, clip: null } as const;

  it('are those of their values, in which 0 by rule is 0 and what is unscored is none', () => {
    const found = outcomeAdvantages(outcomes, { ...settings, per_term: false }, [0.5, 0.5], 2);
    expect(found).toEqual(groupAdvantages([[6, 3, 0, null]], { ...options, factor: 2 }));
    const scope = 'prompt_history';
    const past = outcomeAdvantages(outcomes, { ...settings, scope, per_term: false }, [0.5, 0.5], 2, [[6, 9]]);
    expect(past).toEqual(groupAdvantages([[6, 3, 0, null]], { ...options, scope, factor: 2 }, [[6, 9]]));
    // Two rewards of the past are enough: their mean is 7.5.
    expect(past[0].advantages[1]).toBeCloseTo((2 * -4.5) / 1.5, 2);
  });

  it('are those of their terms where each counts by itself', () => {
    const found = outcomeAdvantages(outcomes, { ...settings, per_term: true }, [0.5, 0.5], 2);
    const terms = [[[1, 0.5], [0.5, 0], [0, 0], null]];
    expect(found).toEqual(perTermAdvantages(terms, [0.5, 0.5], { ...options, factor: 2 }));
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

  it('prompt_history takes those of what the prompt has got so far', () => {
    const history = [[1, 3, 5, 7], [5], []];
    const found = groupAdvantages(groups, { ...options, scope: 'prompt_history', eps: 0 }, history);
    // mean 4, variance (9 + 1 + 1 + 9) / 4
    [-3, -1].forEach((d, i) => expect(found[0].advantages[i]).toBeCloseTo(d / Math.sqrt(5), 12));
    // One reward alone tells nothing: it is compared with the iteration's, of mean 3.
    expect(found[1].advantages[0]).toBeCloseTo(2 / Math.sqrt(8 / 3), 12);
    expect(found[2].dropped).toBe(true);
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

describe('groups without spread', () => {
  it('are dropped, and no others', () => {
    const reward = (value: number | null): Outcome =>
      value === null
        ? { kind: 'unscored', reason: 'timeout', detail: '', parts: {} }
        : { kind: 'scored', value, normalised: value, parts: {}, terms: [] };
    const groups = [
      [3, 3, null],
      [1, 2, null],
      [null, null, 1],
    ].map((group) => group.map(reward));
    const advantage = { scope: 'group', scale: 'std', eps: 1e-4, clip: null, per_term: false } as const;
    const by = (drop_zero_spread: boolean) =>
      new AdvantageRule({ advantage, reward_scale: 1, drop_zero_spread }, []).of(groups, ['a', 'b', 'c']).advantages;
    const [same, different, dropped] = by(true);
    expect(same).toEqual({ advantages: [null, null, null], dropped: true, zeroSpread: true });
    expect([different, dropped]).toEqual(by(false).slice(1));
  });
});
