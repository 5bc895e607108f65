import { expect, it } from 'vitest';
import { colourOf, gridOf, rankOf, valueOf } from '../../../src/web/page/matrix.js';
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

it('is one cell where there is nothing but seeds', () => {
  expect(gridOf({ axes: [], cells: [cell({}, 4)] }, null).rows.map((row) => row.cells.map((one) => one?.mean))).toEqual(
    [[4]],
  );
});

it('shows results, or what there is so far', () => {
  const one = cell({}, null, 2, null, 4);
  expect([valueOf(one, 'result'), valueOf(one, 'so_far'), valueOf(cell({}), 'so_far')]).toEqual([null, 3, null]);
});

it('ranks from the worst to the best', () => {
  expect([1, 2, 3, null].map((value) => rankOf(value, [1, 2, 3, null], false))).toEqual([0, 0.5, 1, null]);
  expect(rankOf(1, [1, 3], true)).toBe(1);
  expect(rankOf(5, [5], false)).toBe(1);
  expect([colourOf(0), colourOf(1)]).toEqual(['rgb(247 240 222)', 'rgb(86 186 146)']);
});
