import { expect, it } from 'vitest';
import { rank } from '../../../src/launch/sweep/schedule.js';

it.each([
  // In float64 20 x 0.55 is 11.000000000000002, and 100 x 0.07 is 7.000000000000001.
  [20, 0.55, 11],
  [100, 0.07, 7],
  [10, 0.25, 3],
  [3, 0.01, 1],
])('of %i runs, %f of them are %i', (count, keep, kept) => {
  const contenders = Array.from({ length: count }, (_, i) => ({ name: `run${i}`, value: -i }));
  const ranked = rank({ metric: 'm', rungs: [1], keep }, contenders);
  expect(ranked.filter((run) => run.kept).map(({ name }) => name)).toEqual(
    contenders.slice(0, kept).map(({ name }) => name),
  );
});
