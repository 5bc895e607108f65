import { describe, expect, it } from 'vitest';
import { RandomStream } from '../../../src/core/random.js';
import { logProbOf, sampleToken, type SamplingOptions } from '../../../src/train/policies/tokens/sampling.js';
import { TokenRow } from '../../../src/train/policies/tokens/token_row.js';

const logits = Float32Array.of(0.5, 2, -1, 1.5, 3, 0, -0.5, 1);
const all = new Uint8Array(8).fill(1);
const free: SamplingOptions = { temperature: 1, topP: 1, topK: -1 };

/** The probabilities that sampling should have, from the definitions. */
function truth(mask: Uint8Array, { temperature, topP, topK }: SamplingOptions): number[] {
  const ids = [...logits.keys()].filter((id) => mask[id] === 1).sort((a, b) => logits[b] - logits[a]);
  const cut = topK === -1 ? ids : ids.slice(0, topK);
  const total = cut.reduce((sum, id) => sum + Math.exp(logits[id] / temperature), 0);
  const nucleus: number[] = [];
  let mass = 0;
  for (const id of cut) {
    if (mass >= topP) break;
    nucleus.push(id);
    mass += Math.exp(logits[id] / temperature) / total;
  }
  return [...logits].map((x, id) => (nucleus.includes(id) ? Math.exp(x / temperature) / total / mass : 0));
}

describe('sampling', () => {
  const some = Uint8Array.of(1, 0, 1, 1, 0, 1, 1, 1);
  const cases: [string, Uint8Array, SamplingOptions][] = [
    ['all tokens', all, free],
    ['a mask', some, free],
    ['a temperature', all, { ...free, temperature: 0.6 }],
    ['top-k', all, { ...free, topK: 3 }],
    ['top-k above the number of tokens', some, { ...free, topK: 50 }],
    ['top-p', all, { ...free, topP: 0.8 }],
    ['a top-p that one token fills', all, { ...free, topP: 0.1 }],
    ['top-k, then top-p, a mask and a temperature', some, { temperature: 1.7, topK: 4, topP: 0.7 }],
  ];

  it.each(cases)('draws from the right distribution with %s', (_name, mask, options) => {
    const expected = truth(mask, options);
    const stream = new RandomStream(11, 'chi-square');
    const draws = 20_000;
    const found = new Array<number>(8).fill(0);
    for (let i = 0; i < draws; i++) found[sampleToken(new TokenRow(logits), mask, options, stream.uniform())]++;
    let chiSquare = 0;
    expected.forEach((p, id) => {
      if (p === 0) expect(found[id]).toBe(0);
      else chiSquare += (found[id] - draws * p) ** 2 / (draws * p);
    });
    // the 99.9 % point for seven degrees of freedom
    expect(chiSquare).toBeLessThan(24.3);
  });

  it('inverts the cumulative distribution: every share of u gives its token', () => {
    for (const options of [free, { ...free, topK: 4 }, { ...free, topP: 0.9 }]) {
      const expected = truth(all, options);
      const shares = new Array<number>(8).fill(0);
      for (let i = 0; i < 10_000; i++) {
        shares[sampleToken(new TokenRow(logits), all, options, (i + 0.5) / 10_000)] += 1e-4;
      }
      expected.forEach((p, id) => expect(Math.abs(shares[id] - p)).toBeLessThan(2e-4));
    }
  });

  it('takes no token more where the first ones have the top-p exactly', () => {
    // Each of four has a quarter: two of them are a half.
    const equal = new TokenRow(new Float32Array(4));
    for (const topK of [-1, 4]) {
      const options = { temperature: 1, topP: 0.5, topK };
      const drawn = Array.from({ length: 50 }, (_, i) =>
        sampleToken(equal, new Uint8Array(4).fill(1), options, i / 50),
      );
      expect(new Set(drawn).size).toBe(2);
    }
  });

  it('needs no mask if all tokens may come', () => {
    for (const options of [free, { ...free, topK: 4 }, { ...free, topP: 0.9 }, { ...free, temperature: 0 }]) {
      for (let u = 0; u < 1; u += 0.01) {
        expect(sampleToken(new TokenRow(logits), null, options, u)).toBe(
          sampleToken(new TokenRow(logits), all, options, u),
        );
      }
    }
  });

  it('takes the most probable allowed token at temperature 0, whatever u is', () => {
    for (const u of [0, 0.5, 0.999999]) {
      expect(sampleToken(new TokenRow(logits), all, { ...free, temperature: 0 }, u)).toBe(4);
      expect(sampleToken(new TokenRow(logits), some, { temperature: 0, topP: 0.5, topK: 2 }, u)).toBe(3);
    }
  });

  it('stays within the mask at the ends of u', () => {
    const low = Float32Array.of(-1e9, -3000, 4, -1e9);
    for (const u of [0, 1 - 2 ** -53]) {
      expect(sampleToken(new TokenRow(low), Uint8Array.of(0, 1, 0, 0), free, u)).toBe(1);
      expect(sampleToken(new TokenRow(low), Uint8Array.of(1, 1, 1, 1), free, u)).toBe(2);
    }
  });
});

describe('log-probabilities', () => {
  it.each([
    [1, 0, 8],
    [0.7, 0, 8],
    [1, 0, 5],
    [0.7, 5, 8],
  ])('are those of the untruncated softmax at temperature %d over [%d, %d)', (temperature, from, to) => {
    for (let token = from; token < to; token++) {
      let total = 0;
      for (let id = from; id < to; id++) total += Math.exp(logits[id] / temperature);
      const expected = Math.log(Math.exp(logits[token] / temperature) / total);
      expect(logProbOf(new TokenRow(logits), token, temperature, from, to)).toBeCloseTo(expected, 10);
    }
  });

  it('do not overflow', () => {
    expect(logProbOf(new TokenRow(Float32Array.of(1000, 990)), 1, 0.5, 0, 2)).toBeCloseTo(-20, 6);
  });
});
