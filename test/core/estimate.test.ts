import { expect, it } from 'vitest';
import { meanDifference, showEstimate } from '../../src/core/estimate.js';

it('has the digits that tell an error from 0', () => {
  expect(showEstimate({ mean: 4.0266, stderr: 0.24 }, 2)).toBe('4.03 ± 0.24');
  expect(showEstimate({ mean: 0.123_456, stderr: 0.000_42 })).toBe('0.12346 ± 0.00042');
  expect(showEstimate({ mean: 1, stderr: 0 })).toBe('1.000 ± 0.000');
  expect(showEstimate({ mean: 1, stderr: 1e-12 })).toBe('1.000 ± 0.000');
  expect(showEstimate({ mean: 1, stderr: null })).toBe('1.000');
});

it('leaves out an error that is not a number, and has a dash for a mean of nothing', () => {
  expect(showEstimate({ mean: 0.238, stderr: NaN })).toBe('0.238');
  expect(showEstimate({ mean: NaN, stderr: NaN })).toBe('–');
});

it('is the mean of differences, whose error a single one does not have', () => {
  // Variance 1 over two degrees of freedom: the error of the mean is sqrt(1 / 3).
  expect(meanDifference([1, 2, 3])).toEqual({ mean: 2, stderr: expect.closeTo(Math.sqrt(1 / 3), 12) as number, n: 3 });
  expect(meanDifference([4])).toEqual({ mean: 4, stderr: null, n: 1 });
  expect(meanDifference([])).toBeNull();
});
