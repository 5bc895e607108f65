import { describe, expect, it } from 'vitest';
import { curveOf, downsample, metricNames, sparkline, spreadCurve } from '../../../src/run/report/curves.js';

const lines = [
  { iteration: 0, metrics: { 'validation/sampled/mean': 1 } },
  { iteration: 1, metrics: { 'reward/mean': 2, 'policy/kl': NaN } },
  { iteration: 2, metrics: { 'reward/mean': 3 } },
];

describe('curves', () => {
  it('are of the iterations that measured them', () => {
    expect(metricNames(lines)).toEqual(['policy/kl', 'reward/mean', 'validation/sampled/mean']);
    expect(curveOf(lines, 'reward/mean')).toEqual([
      { x: 1, y: 2 },
      { x: 2, y: 3 },
    ]);
    expect(curveOf(lines, 'policy/kl')).toEqual([{ x: 1, y: NaN }]);
  });

  it('of several seeds have a mean and a spread over those that got so far', () => {
    const curve = (...values: number[]): { x: number; y: number }[] => values.map((y, x) => ({ x, y }));
    expect(spreadCurve([curve(1, 2, NaN), curve(3, 6, NaN), curve(5)])).toEqual([
      { x: 0, mean: 3, std: 2, low: 1, high: 5, n: 3 },
      { x: 1, mean: 4, std: Math.sqrt(8), low: 2, high: 6, n: 2 },
    ]);
    expect(spreadCurve([curve(7)])).toEqual([{ x: 0, mean: 7, std: null, low: 7, high: 7, n: 1 }]);
  });
});

describe('fewer points', () => {
  const points = Array.from({ length: 100_000 }, (_, x) => ({ x, y: x === 54_321 ? 1e6 : Math.sin(x / 3000) }));

  it('keep both ends, peaks and their order', () => {
    const few = downsample(points, 500);
    expect(few.length).toBeLessThanOrEqual(500);
    expect(few.length).toBeGreaterThan(400);
    expect(few[0]).toEqual(points[0]);
    expect(few.at(-1)).toEqual(points.at(-1));
    expect(few).toContainEqual({ x: 54_321, y: 1e6 });
    expect(few.every(({ x }, at) => at === 0 || x > few[at - 1].x)).toBe(true);
  });

  it('keep a gap, and a short curve as it is', () => {
    const torn = points.map((point) => (point.x > 20_000 && point.x < 30_000 ? { ...point, y: NaN } : point));
    expect(downsample(torn, 100).filter(({ y }) => Number.isNaN(y)).length).toBeGreaterThan(3);
    expect(downsample(points.slice(0, 3), 3)).toEqual(points.slice(0, 3));
    expect(downsample(points, 2)).toEqual([points[0], points.at(-1)]);
  });
});

describe('a sparkline', () => {
  it('goes from the least to the greatest, in as many letters as there is room', () => {
    expect(sparkline([0, 1, 2, 3, 4, 5, 6, 7], 20)).toBe('▁▂▃▄▅▆▇█');
    expect(
      sparkline(
        Array.from({ length: 800 }, (_, i) => i),
        8,
      ),
    ).toBe('▁▂▃▄▅▆▇█');
    expect(sparkline([5, 5, NaN, 5], 20)).toBe('▄▄▄');
    expect(sparkline([NaN], 20)).toBe('');
  });
});
