import { describe, expect, it } from 'vitest';
import { condense, finiteCurve, smooth, sparkline } from '../../src/core/curves.js';

const upTo = (count: number): number[] => Array.from({ length: count }, (_, i) => i);

describe('the points of a curve', () => {
  it('are those that are finite, whichever others were not measured', () => {
    expect(finiteCurve([0, 1, 2, 3], [NaN, 5, Infinity, 6])).toEqual({ iterations: [1, 3], mean: [5, 6] });
  });

  it('have a band as wide as their errors, if there are any', () => {
    expect(finiteCurve([0, 1, 2], [4, 5, 6], [0.5, NaN])).toEqual({
      iterations: [0, 1, 2],
      mean: [4, 5, 6],
      low: [3.5, 5, 6],
      high: [4.5, 5, 6],
    });
    expect(finiteCurve([0, 1], [4, 5], [0, 0])).toEqual({ iterations: [0, 1], mean: [4, 5] });
  });
});

describe('fewer points', () => {
  const iterations = upTo(100_000);
  const mean = iterations.map((at) => (at === 54_321 ? 1e6 : Math.sin(at / 3000)));

  it('keep peaks as extremes, and their order', () => {
    const few = condense({ iterations, mean }, 500);
    expect(few.mean).toHaveLength(500);
    expect(few.high?.reduce((a, b) => Math.max(a, b))).toBe(1e6);
    expect(few.low?.reduce((a, b) => Math.min(a, b))).toBeCloseTo(-1, 4);
    expect(few.iterations.every((one, at) => at === 0 || one > few.iterations[at - 1])).toBe(true);
    expect(few.mean[0]).toBeCloseTo(Math.sin(100 / 3000), 2);
  });

  it('keep the width of a band, and a short curve as it is', () => {
    const curve = { iterations: [0, 1, 2, 3], mean: [1, 3, 5, 7], low: [0, 2, 4, 6], high: [2, 4, 6, 8] };
    expect(condense(curve, 2)).toEqual({ iterations: [0, 2], mean: [2, 6], low: [1, 5], high: [3, 7] });
    expect(condense(curve, 4)).toBe(curve);
  });
});

it('keeps the course after a value that is much larger than all others', () => {
  const out = smooth([1e20, ...upTo(40).map(() => 0.25)]);
  expect(out.at(-1)).toBe(0.25);
  expect(out.at(20)).toBe(0.25);
});

it('smooths with a centred window and passes over broken numbers', () => {
  const out = smooth(upTo(20).map((x) => (x === 7 ? NaN : 2 * x)));
  expect([out[0], out[19], out[12]]).toEqual([0, 38, 24]);
  expect(Number.isFinite(out[7])).toBe(true);
});

it('fits a line to both ends: a slope stays, and one last value moves the curve by a part of its height', () => {
  const straight = smooth(upTo(200).map((x) => 3 - x / 10));
  straight.forEach((y, x) => expect(y).toBeCloseTo(3 - x / 10));
  const jump = smooth(upTo(200).map((x) => (x === 199 ? 1 : 0)));
  expect(jump[199]).toBeGreaterThan(0);
  expect(jump[199]).toBeLessThan(0.25);
  const fall = smooth(upTo(40).map((x) => Math.exp(-2 * x)));
  expect(Math.min(...fall)).toBeGreaterThan(0);
  expect(smooth(upTo(40).map((x) => (x > 36 ? 0 : 1))).at(-1)).toBe(0);
  expect(smooth([NaN, NaN, NaN])).toEqual([NaN, NaN, NaN]);
  expect(smooth([])).toEqual([]);
  expect(smooth([5])).toEqual([5]);
  expect(smooth([NaN, 4, NaN])[1]).toBe(4);
});

describe('a sparkline', () => {
  it('goes from the least to the greatest, in as many letters as there is room', () => {
    expect(sparkline([0, 1, 2, 3, 4, 5, 6, 7], 20)).toBe('▁▂▃▄▅▆▇█');
    expect(sparkline(upTo(800), 8)).toBe('▁▂▃▄▅▆▇█');
    expect(sparkline([5, 5, NaN, 5], 20)).toBe('▄▄▄');
    expect(sparkline([NaN], 20)).toBe('');
  });
});
