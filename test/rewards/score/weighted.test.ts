import { describe, expect, it } from 'vitest';
import type { Outcome } from '../../../src/rewards/score/types.js';
import { weightedSum } from '../../../src/rewards/score/weighted.js';

const scored = (normalised: number, parts = {}): Outcome => ({ kind: 'scored', value: -5, normalised, parts });
const zero: Outcome = { kind: 'zero_by_rule', reason: 'undecodable', parts: {} };
const unscored: Outcome = { kind: 'unscored', reason: 'timeout', detail: 'no answer in time', parts: { 'b/x': 1 } };

describe('a weighted sum', () => {
  it('is that of the normalized values, with the parts of all terms', () => {
    const outcome = weightedSum([
      { name: 'a', weight: 0.25, outcome: scored(0.8, { 'a/kb': 40 }) },
      { name: 'b', weight: 0.75, outcome: scored(0.4, { 'b/x': 4, 'b/y': 7 }) },
    ]);
    // 0.25 * 0.8 + 0.75 * 0.4 = 0.5
    expect(outcome).toEqual({
      kind: 'scored',
      value: 0.5,
      normalised: 0.5,
      parts: { 'a/kb': 40, 'a/normalised': 0.8, 'b/x': 4, 'b/y': 7, 'b/normalised': 0.4 },
      terms: [
        { name: 'a', weight: 0.25, normalised: 0.8 },
        { name: 'b', weight: 0.75, normalised: 0.4 },
      ],
    });
  });

  it('stays in [0, 1] where the weights, written by hand, miss 1 in their last digits', () => {
    const tenths = Array.from({ length: 10 }, (_, i) => ({ name: `${i}`, weight: 0.1, outcome: scored(1) }));
    expect(weightedSum(tenths)).toMatchObject({ value: 1, normalised: 1 });
    const more = tenths.map((term) => ({ ...term, weight: 0.10000001 }));
    expect(weightedSum(more)).toMatchObject({ value: 1 });
  });

  it('counts a term that is zero by rule as 0', () => {
    const outcome = weightedSum([
      { name: 'a', weight: 0.5, outcome: zero },
      { name: 'b', weight: 0.5, outcome: scored(0.5) },
    ]);
    expect(outcome).toEqual({
      kind: 'scored',
      value: 0.25,
      normalised: 0.25,
      parts: { 'a/normalised': 0, 'b/normalised': 0.5 },
      terms: [
        { name: 'a', weight: 0.5, normalised: 0 },
        { name: 'b', weight: 0.5, normalised: 0.5 },
      ],
    });
  });

  it('is zero by rule if all terms are', () => {
    const both = ['a', 'b'].map((name) => ({ name, weight: 0.5, outcome: zero }));
    expect(weightedSum(both)).toEqual({
      kind: 'zero_by_rule',
      reason: 'undecodable',
      parts: { 'a/normalised': 0, 'b/normalised': 0 },
    });
  });

  it.each([[scored(1)], [zero]])('is unscored where one term is, whatever the others are', (other) => {
    const outcome = weightedSum([
      { name: 'a', weight: 0.5, outcome: other },
      { name: 'b', weight: 0.5, outcome: unscored },
    ]);
    expect(outcome).toMatchObject({ kind: 'unscored', reason: 'timeout', detail: 'b: no answer in time' });
    expect(outcome.parts).toMatchObject({ 'b/x': 1 });
    expect(outcome.parts).not.toHaveProperty('b/normalised');
  });
});
