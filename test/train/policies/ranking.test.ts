import { describe, expect, it } from 'vitest';
import { RandomStream } from '../../../src/core/random.js';
import { Ranking } from '../../../src/train/policies/tokens/sampling.js';
import { TokenRow } from '../../../src/train/policies/tokens/token_row.js';

describe('the ranking of tokens', () => {
  it.each([0, 1, 2, 7, 500])('is that of a sort over %d tokens, with ties and a mask', (count) => {
    const random = new RandomStream(3, 'ranking', count);
    // Few values, so that many are equal.
    const logits = Float32Array.from({ length: count }, () => random.integer(20) - 10);
    const mask = Uint8Array.from({ length: count }, () => (random.uniform() < 0.7 ? 1 : 0));
    const sorted = [...logits.keys()].filter((id) => mask[id] === 1).sort((a, b) => logits[b] - logits[a] || a - b);
    const ranking = new Ranking(new TokenRow(logits), mask);
    const found: number[] = [];
    for (let id = ranking.next(); id >= 0; id = ranking.next()) found.push(id);
    expect(found).toEqual(sorted);
    expect(ranking.next()).toBe(-1);
  });
});
