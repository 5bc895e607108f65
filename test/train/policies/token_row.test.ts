import { describe, expect, it } from 'vitest';
import { RandomStream } from '../../../src/core/random.js';
import { Session } from '../../../src/compute/onnx/session.js';
import { Graph } from '../../../src/compute/graph/ir.js';
import { Ranking, logProbOf, sampleToken, type SamplingOptions } from '../../../src/train/policies/tokens/sampling.js';
import {
  summedBlocks,
  summarizeBlocks,
  TokenRow,
  type RowSummary,
} from '../../../src/train/policies/tokens/token_row.js';

const BLOCK = 256;
/** Nine whole blocks and some. */
const VOCABULARY = 9 * BLOCK + 100;
const free: SamplingOptions = { temperature: 0.8, topP: 1, topK: -1 };

const random = new RandomStream(5, 'rows');
const logits = Float32Array.from({ length: VOCABULARY }, () => 3 * random.normal());
/** Forbids some ids here, and whole blocks there. */
const mask = Uint8Array.from(logits, (_, id) =>
  [2, 5].includes(Math.floor(id / BLOCK)) || (id < BLOCK && id % 3 === 0) ? 0 : 1,
);

/** What the graph says, from the definitions. */
function summary(temperature: number): RowSummary {
  const blocks = Array.from({ length: 9 }, (_, b) => logits.subarray(b * BLOCK, (b + 1) * BLOCK));
  const maxima = Float32Array.from(blocks, (block) => Math.max(...block));
  const shares = Float32Array.from(
    blocks,
    (block, b) => 1 / block.reduce((sum, x) => sum + Math.exp((x - maxima[b]) / temperature), 0),
  );
  return { temperature, maxima, shares };
}

const plain = new TokenRow(logits);
const summed = new TokenRow(logits, summary(0.8));
const draws = Array.from({ length: 120 }, (_, i) => (i + 0.5) / 120);

describe('a row that is summed up by blocks', () => {
  it.each([
    ['everything', free],
    ['another temperature', { ...free, temperature: 1.3 }],
    ['the most probable', { ...free, temperature: 0 }],
    ['top-k', { ...free, topK: 40 }],
    ['top-p', { ...free, topP: 0.9 }],
  ])('gives the tokens that a scan gives: %s, with and without a mask', (_name, options) => {
    for (const allowed of [null, mask, new Uint8Array(VOCABULARY).fill(1, 2 * BLOCK, 4 * BLOCK + 7)]) {
      const by = (row: TokenRow): number[] => draws.map((u) => sampleToken(row, allowed, options, u));
      expect(by(summed)).toEqual(by(plain));
    }
  });

  it('takes the most probable of what may come where the very greatest may not', () => {
    const greatest = logits.indexOf(Math.max(...logits.subarray(0, 9 * BLOCK)));
    const others = new Uint8Array(VOCABULARY).fill(1);
    others[greatest] = 0;
    const greedy = { ...free, temperature: 0 };
    expect(sampleToken(summed, null, greedy, 0)).toBe(greatest);
    expect(sampleToken(summed, others, greedy, 0)).toBe(sampleToken(plain, others, greedy, 0));
    expect(sampleToken(summed, others, greedy, 0)).not.toBe(greatest);
  });

  it('gives a token that may come even if no logit is a number', () => {
    const nothing = new Float32Array(VOCABULARY).fill(NaN);
    const none = { temperature: 0.8, maxima: nothing.slice(0, 9), shares: nothing.slice(0, 9) };
    for (const row of [new TokenRow(nothing), new TokenRow(nothing, none)]) {
      for (const options of [free, { ...free, temperature: 0 }, { ...free, topP: 0.5 }]) {
        expect(mask[sampleToken(row, mask, options, 0.5)]).toBe(1);
      }
    }
  });

  it.each([
    [0, VOCABULARY],
    [0, 700],
    [700, VOCABULARY],
    [300, 310],
  ])('has the log-probabilities of a scan over [%i, %i)', (from, to) => {
    for (const temperature of [0.8, 1]) {
      for (const token of [from, Math.floor((from + to) / 2), to - 1]) {
        const scanned = logits.slice(from, to).reduce((sum, x) => sum + Math.exp(x / temperature), 0);
        const expected = logits[token] / temperature - Math.log(scanned);
        expect(logProbOf(summed, token, temperature, from, to)).toBeCloseTo(expected, 5);
        expect(logProbOf(plain, token, temperature, from, to)).toBeCloseTo(expected, 10);
      }
    }
  });

  it.each([null, mask])('is ranked as a sort ranks it', (allowed) => {
    const sorted = [...logits.keys()]
      .filter((id) => allowed === null || allowed[id] === 1)
      .sort((a, b) => logits[b] - logits[a] || a - b);
    const ranking = new Ranking(summed, allowed);
    expect(sorted.map(() => ranking.next())).toEqual(sorted);
    expect(ranking.next()).toBe(-1);
  });

  it('gets from the graph the values of the definitions', async () => {
    expect([100, 2047, 2048, VOCABULARY].map(summedBlocks)).toEqual([0, 0, 8, 9]);
    const graph = new Graph('rows');
    const outputs = summarizeBlocks(graph.input('logits', [2, VOCABULARY]), graph.input('inverse', [1]));
    const session = await Session.compile(graph, { ...outputs }, { threads: 1 });
    const both = new Float32Array(2 * VOCABULARY);
    both.set(logits, VOCABULARY);
    const found = await session.run({ logits: both, inverse: Float32Array.of(1 / 0.8) });
    await session.dispose();
    const { maxima, shares } = summary(0.8);
    expect((found.maxima as Float32Array).subarray(9)).toEqual(maxima);
    shares.forEach((share, b) => expect((found.shares as Float32Array)[9 + b] / share).toBeCloseTo(1, 5));
    expect((found.shares as Float32Array)[0]).toBeCloseTo(1 / BLOCK, 8);
  });
});
