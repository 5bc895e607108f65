import { describe, expect, it } from 'vitest';
import { average, deviation, quantile, standardError } from '../../src/core/statistics.js';

describe('summaries', () => {
  it('follow their definitions', () => {
    expect(average([1, 2, 6])).toBe(3);
    expect(average([])).toBeNaN();
    expect(deviation([1, 3])).toBe(1);
    // sample deviation of 1, 3 is sqrt(2), over sqrt(2)
    expect(standardError([1, 3])).toBeCloseTo(1, 12);
    expect(standardError([1])).toBeNaN();
  });

  it('have quantiles between neighbors in proportion', () => {
    expect([0, 0.5, 0.75, 1].map((share) => quantile([9, 1, 3], share))).toEqual([1, 3, 6, 9]);
    expect(quantile([10, 2], 0.5)).toBe(6);
    expect(quantile([4], 0.95)).toBe(4);
    expect(quantile([], 0.5)).toBeNaN();
  });
});
