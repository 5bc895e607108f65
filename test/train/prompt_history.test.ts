import { describe, expect, it } from 'vitest';
import { extendHistory } from '../../src/train/advantages.js';
import { scored, unscored, zero } from './small_training.js';

describe('the history of prompts', () => {
  it('keeps the rewards of each sample, zeros by rule too, and nothing unscored', () => {
    const first = extendHistory({}, ['a', 'b'], [[scored(1), unscored, zero], [scored(5)]]);
    expect(first).toEqual({ a: [1, 0], b: [5] });
    expect(extendHistory(first, ['a'], [[scored(7)]])).toEqual({ a: [1, 0, 7], b: [5] });
    expect(first).toEqual({ a: [1, 0], b: [5] });
  });

  it('joins two groups of one sample', () => {
    expect(extendHistory({}, ['a', 'a'], [[scored(1)], [scored(2)]])).toEqual({ a: [1, 2] });
  });

  it('forgets the oldest, but nothing of the latest group', () => {
    let history = {};
    for (let i = 0; i < 40; i++) history = extendHistory(history, ['a'], [[scored(i)]]);
    expect(history).toEqual({ a: Array.from({ length: 32 }, (_, i) => i + 8) });
    const group = Array.from({ length: 50 }, (_, i) => scored(i));
    expect(extendHistory(history, ['a'], [group])).toEqual({ a: group.map((_, i) => i) });
  });
});
