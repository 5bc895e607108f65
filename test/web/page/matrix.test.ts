import { describe, expect, it } from 'vitest';
import { gridOf, legendOf, nameOf, runsOf, standingsOf, valueOf } from '../../../src/web/page/matrix.js';
import type { WireCell } from '../../../src/web/wire.js';

function cell(
  axes: Record<string, string>,
  mean: number | null = null,
  ...soFar: readonly (number | null)[]
): WireCell {
  const runs = soFar.map((held_out, i) => ({
    ...{ id: null, name: String(i), seed: null, state: 'queued' as const, iteration: 0, num_iterations: 1 },
    held_out,
  }));
  return { axes, is_baseline: false, mean, std: null, n: 1, difference: null, runs };
}
const axes = [
  { name: 'reward', values: ['viescore', 'ground'] },
  { name: 'kl', values: ['0', '1e-4', '3e-4'] },
];

it('puts one axis across and the others down, in the order of their values', () => {
  const cells = [cell({ reward: 'ground', kl: '3e-4' }, 3), cell({ reward: 'viescore', kl: '0' }, 1)];
  const across = gridOf({ axes, cells }, 'kl');
  expect(across.rows.map(({ axes: own }) => own)).toEqual([[['reward', 'viescore']], [['reward', 'ground']]]);
  expect(across.rows.map((row) => row.cells.map((one) => one?.mean ?? null))).toEqual([
    [1, null, null],
    [null, null, 3],
  ]);
  expect(gridOf({ axes, cells }, 'reward').values).toEqual(['viescore', 'ground']);
  expect(gridOf({ axes, cells }, 'no such axis').column).toBe('kl');
});

it('is one cell if there is nothing but seeds', () => {
  expect(gridOf({ axes: [], cells: [cell({}, 4)] }, null).rows.map((row) => row.cells.map((one) => one?.mean))).toEqual(
    [[4]],
  );
});

it('names a cell as its runs are named, and knows those that have begun', () => {
  expect(nameOf({ axes: { reward: 'viescore', kl: '3e-4' } })).toBe('reward-viescore__kl-3e-4');
  const [begun, queued] = [...cell({}, null, 2, 3).runs].map((run, at) => ({ ...run, id: at === 0 ? '0/a' : null }));
  expect(runsOf({ runs: [queued, begun] })).toEqual(['0/a']);
});

it('shows results, or what there is so far', () => {
  const one = cell({}, null, 2, null, 4);
  expect([valueOf(one, 'result'), valueOf(one, 'so_far'), valueOf(cell({}), 'so_far')]).toEqual([null, 3, null]);
});

describe('a cell stands', () => {
  const base = { less_is_better: false, comparable: true };
  const paired = (mean: number, stderr: number | null): WireCell => ({
    ...cell({}, 1),
    difference: { mean, stderr, n: 3 },
  });

  it('by its paired difference from the baseline', () => {
    const cells = [
      { ...cell({}, 1), is_baseline: true },
      paired(2, 1),
      paired(1.9, 1),
      paired(-2, 1),
      paired(5, null),
      cell({}),
    ];
    const of = (less: boolean) => {
      const found = standingsOf({ ...base, cells, less_is_better: less });
      return cells.map((one) => found.get(one));
    };
    expect(of(false)).toEqual(['reference', 'better', 'level', 'worse', 'unknown', undefined]);
    expect(of(true)).toEqual(['reference', 'worse', 'level', 'better', 'unknown', undefined]);
    expect(standingsOf({ ...base, cells, comparable: false }).size).toBe(0);
  });

  it('by its paired difference from the best cell, without a baseline', () => {
    const cells = [cell({}, 10), paired(-1.9, 1), paired(-2, 1), paired(-1, null), cell({}, 5), paired(0, 0), cell({})];
    const found = standingsOf({ ...base, cells });
    expect(cells.map((one) => found.get(one))).toEqual([
      'reference',
      'level',
      'worse',
      'unknown',
      'unknown',
      'level',
      undefined,
    ]);
    expect(legendOf(new Set(found.values()), false).map(([, meaning]) => meaning)).toEqual([
      'best mean',
      'within 2 standard errors of the best',
      'worse than the best by at least 2 standard errors',
      'no standard error (single seed)',
    ]);
  });
});
