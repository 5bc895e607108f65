/** One iteration on several ranks. */
import { describe, expect, it } from 'vitest';
import { shareOf } from '../../src/core/group/peers.js';
import { sameOnRanks } from './on_ranks.js';

describe('shares', () => {
  it.each([
    [12, 4],
    [5, 4],
    [3, 4],
    [0, 2],
  ])('of %d things for %d ranks are contiguous, whole and even', (count, size) => {
    const shares = Array.from({ length: size }, (_, rank) => shareOf(count, { rank, size }));
    expect(shares[0].start).toBe(0);
    expect(shares.at(-1)!.end).toBe(count);
    shares.slice(1).forEach(({ start }, i) => expect(start).toBe(shares[i].end));
    for (const { start, end } of shares) expect(Math.abs(end - start - count / size)).toBeLessThan(1);
  });
});

sameOnRanks([2]);
