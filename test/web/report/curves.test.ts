import { expect, it } from 'vitest';
import type { MetricsLine } from '../../../src/run/metrics.js';
import { reportCurves, meanWithSpread } from '../../../src/web/curves.js';

function lines(count: number, metrics: (iteration: number) => Record<string, number>): MetricsLine[] {
  return Array.from({ length: count }, (_, iteration) => ({ iteration, metrics: metrics(iteration) }));
}

it('carries what has a chart, with the standard errors of held-out numbers', () => {
  const run = lines(2, (i) => ({
    'reward/mean': i === 0 ? NaN : 2 / 3,
    'validation/sampled/mean': i,
    'validation/sampled/stderr': 0.5,
    'checkpoint/bytes': 9,
    ...(i === 1 ? { 'alarm/repeat_rate': 1 } : {}),
  }));
  expect(reportCurves([{ label: 'a', runs: [run] }], null)).toEqual({
    metrics: ['reward/mean', 'validation/sampled/mean'],
    lines: 2,
    wrong_lines: 0,
    alarms: [{ metric: 'hack/repeat_rate', span: [1, 1] }],
    curves: [
      { metric: 'reward/mean', iterations: [1], mean: [0.666667] },
      { metric: 'validation/sampled/mean', iterations: [0, 1], mean: [0, 1], low: [-0.5, 0.5], high: [0.5, 1.5] },
    ],
  });
});

it('makes one curve of several seeds, over those that got so far', () => {
  const curve = (...mean: number[]): { iterations: number[]; mean: number[] } => ({
    iterations: mean.map((_, at) => at),
    mean,
  });
  expect(meanWithSpread([curve(1, 2), curve(3, 6), curve(5)], 'validation/loss')).toEqual({
    iterations: [0, 1],
    mean: [3, 4],
    low: [1, 4 - Math.sqrt(8)],
    high: [5, 4 + Math.sqrt(8)],
  });
  expect(meanWithSpread([curve(7)], 'validation/loss')).toEqual(curve(7));
});

it('smooths the long training curves of what is compared, and has colors for ten', () => {
  const run = lines(40, (i) => ({ 'reward/mean': i % 2 }));
  const groups = Array.from({ length: 12 }, (_, at) => ({ label: `cell ${at}`, runs: [run] }));
  const { curves, groups: named, more_groups: more } = reportCurves(groups, null);
  expect([named?.length, more, curves.length]).toEqual([10, 2, 10]);
  expect(Math.max(...curves[0].mean.slice(5, 35))).toBeLessThan(0.7);
  const seeds = reportCurves([{ label: 'a', runs: [run, run] }], null);
  expect(seeds.over_seeds).toBe(true);
  // The legend has the last value as it was measured.
  expect([curves[0].last, seeds.curves[0].last]).toEqual([1, 1]);
  expect(Math.max(...seeds.curves[0].mean.slice(5, 35))).toBeLessThan(0.7);
  const [few] = reportCurves(
    [groups[0], groups[1]].map((one) => ({ ...one, runs: [run.slice(0, 10)] })),
    null,
  ).curves;
  expect(few.mean).toEqual([0, 1, 0, 1, 0, 1, 0, 1, 0, 1]);
});
