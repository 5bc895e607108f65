import { describe, expect, it } from 'vitest';
import { DataError } from '../../src/core/errors.js';
import { createSampler, type Sampler } from '../../src/data/sampler.js';

const sources = [
  { name: 'a', length: 10 },
  { name: 'b', length: 40 },
];

/** How often each sample of each source occurs in an epoch, axes [source][index]. */
function countsOf(sampler: Sampler, epoch: number): number[][] {
  const counts = sources.map(({ length }) => new Array<number>(length).fill(0));
  for (let i = 0; i < sampler.epochLength; i++) {
    const place = sampler.at(epoch * sampler.epochLength + i);
    expect(place.epoch).toBe(epoch);
    counts[place.source][place.index] += 1;
  }
  return counts;
}

const sum = (values: readonly number[]): number => values.reduce((a, b) => a + b, 0);

describe('the sampler', () => {
  it('takes everything once with coefficients of 1, in another order each epoch', () => {
    const sampler = createSampler(sources, { seed: 1, coefficients: [1, 1] });
    expect(sampler.epochLength).toBe(50);
    for (const epoch of [0, 1, 7]) {
      expect(countsOf(sampler, epoch).flat()).toEqual(new Array(50).fill(1));
    }
    const order = (epoch: number) => Array.from({ length: 50 }, (_, i) => sampler.at(epoch * 50 + i).index);
    expect(order(0)).not.toEqual(order(1));
  });

  it('repeats for the integer part and samples the remainder', () => {
    const sampler = createSampler(sources, { seed: 1, coefficients: [2.5, 1] });
    expect(sampler.perSource).toEqual([25, 40]);
    const [first, second] = [countsOf(sampler, 0)[0], countsOf(sampler, 1)[0]];
    for (const counts of [first, second]) {
      expect(sum(counts)).toBe(25);
      expect(counts.every((count) => count === 2 || count === 3)).toBe(true);
    }
    expect(first).not.toEqual(second);
  });

  it('samples a part below 1, over the epochs all of it', () => {
    const sampler = createSampler(sources, { seed: 1, coefficients: [1, 0.25] });
    const epochs = Array.from({ length: 40 }, (_, epoch) => countsOf(sampler, epoch)[1]);
    for (const counts of epochs) {
      expect(sum(counts)).toBe(10);
      expect(Math.max(...counts)).toBe(1);
    }
    expect(epochs[0].every((_, index) => epochs.some((counts) => counts[index] > 0))).toBe(true);
  });

  it('raises all sources to the largest without coefficients', () => {
    const sampler = createSampler(sources, { seed: 1, coefficients: [] });
    expect(sampler.perSource).toEqual([40, 40]);
    expect(countsOf(sampler, 0)[0]).toEqual(new Array(10).fill(4));
  });

  it('is a pure function of the seed and the position', () => {
    const options = { seed: 3, coefficients: [1.7, 0.6] };
    const one = createSampler(sources, options);
    const positions = Array.from({ length: 300 }, (_, i) => (i * 7919) % 1000);
    const there = positions.map((at) => one.at(at));
    const backwards = [...positions].reverse().map((at) => createSampler(sources, options).at(at));
    expect(backwards.reverse()).toEqual(there);
    expect(positions.map((at) => createSampler(sources, { ...options, seed: 4 }).at(at))).not.toEqual(there);
  });

  it('mixes sources throughout an epoch', () => {
    const sampler = createSampler(sources, { seed: 5, coefficients: [] });
    const firstHalf = Array.from({ length: 40 }, (_, i) => sampler.at(i).source);
    expect(sum(firstHalf)).toBeGreaterThan(10);
    expect(sum(firstHalf)).toBeLessThan(30);
  });

  it('draws the part of a source once if requested, and else again in each epoch', () => {
    const drawn = (part?: 'once' | 'each_epoch'): string[] => {
      const sampler = createSampler(sources, {
        seed: 6,
        coefficients: [0.5, 1.25],
        ...(part === undefined ? {} : { part }),
      });
      return [0, 1, 2].map((epoch) => {
        const places = Array.from({ length: sampler.epochLength }, (_, i) =>
          sampler.at(epoch * sampler.epochLength + i),
        );
        return places
          .map(({ source, index }) => `${source}/${index}`)
          .sort()
          .join(' ');
      });
    };
    expect(new Set(drawn('once')).size).toBe(1);
    expect(new Set(drawn()).size).toBe(3);
    expect(drawn('each_epoch')).toEqual(drawn());
    // The first epoch is that of either.
    expect(drawn('once')[0]).toBe(drawn()[0]);
  });

  it('takes at least one sample of a source that is named', () => {
    expect(createSampler(sources, { seed: 1, coefficients: [0.001, 1] }).perSource).toEqual([1, 40]);
  });

  it.each([
    [sources, [1]],
    [sources, [1, 0]],
    [sources, [1, -2]],
    [sources, [1, NaN]],
    [[], []],
    [[{ name: 'empty', length: 0 }], []],
  ])('rejects %j with coefficients %j', (given, coefficients) => {
    expect(() => createSampler(given, { seed: 1, coefficients })).toThrow(DataError);
  });

  it('rejects positions that are none', () => {
    const sampler = createSampler(sources, { seed: 1, coefficients: [] });
    for (const at of [-1, 0.5, Infinity]) expect(() => sampler.at(at)).toThrow(DataError);
  });
});
