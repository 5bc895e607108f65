import { describe, expect, it } from 'vitest';
import { rewardOf, scoreParts } from '../../src/scoring/outcomes.js';
import { scored, unscored, zero } from '../train/small_training.js';

describe('outcomes', () => {
  it('are worth their value, 0, or nothing', () => {
    expect([scored(7), zero, unscored].map(rewardOf)).toEqual([7, 0, null]);
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
