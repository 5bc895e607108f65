import { expect, it } from 'vitest';
import { windowsOf } from '../../../../src/compute/nets/vision/layout.js';

// A square is 2x2 patches of 2 pixels; a window of 8 pixels has 2x2 squares, fewer at the right and lower edges.
const settings = { patch_size: 2, spatial_merge_size: 2, windows: { window_size: 8, fullatt_block_indexes: [] } };

it('lays the squares of one time step out window after window, those at the edges smaller', () => {
  expect(windowsOf({ steps: 1, rows: 6, columns: 10 }, settings)).toEqual([
    [0, 1, 5, 6],
    [2, 3, 7, 8],
    [4, 9],
    [10, 11],
    [12, 13],
    [14],
  ]);
  expect(windowsOf({ steps: 1, rows: 2, columns: 6 }, { ...settings, windows: null })).toEqual([[0, 1, 2]]);
});
