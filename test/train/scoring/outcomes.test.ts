import { describe, expect, it } from 'vitest';
import { rewardOf, scoreParts, showOutcome } from '../../../src/train/scoring/outcomes.js';
import { scored, unscored, zero } from '../small_training.js';

describe('outcomes', () => {
  it('are worth their value, 0, or nothing', () => {
    expect([scored(7), zero, unscored].map(rewardOf)).toEqual([7, 0, null]);
  });

  it('are shown with as many digits as tell answers apart on their scale', () => {
    const of = (value: number, most: number): string =>
      showOutcome({ kind: 'scored', value, normalised: value / most, parts: {} });
    expect([of(7.44, 10), of(0, 10), of(0.071, 1), of(0.125, 1), of(1, 1)]).toEqual([
      '7.4',
      '0.0',
      '0.07',
      '0.13',
      '1.00',
    ]);
    expect([zero, unscored].map(showOutcome)).toEqual(['0 (undecodable)', 'timeout']);
  });

  it('keep the parts that each has', () => {
    const partial = { ...unscored, parts: { b: 1 } };
    expect(scoreParts([scored(7), zero, partial, scored(1)])).toEqual(
      new Map([
        ['a', [7, 1]],
        ['b', [1]],
      ]),
    );
  });
});
