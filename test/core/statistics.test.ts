import { describe, expect, it } from 'vitest';
import { average, deviation, standardError } from '../../src/core/statistics.js';

describe('summaries', () => {
  it('follow their definitions', () => {
    expect(average([1, 2, 6])).toBe(3);
    expect(average([])).toBeNaN();
    expect(deviation([1, 3])).toBe(1);
    // sample deviation of 1, 3 is sqrt(2), over sqrt(2)
    expect(standardError([1, 3])).toBeCloseTo(1, 12);
    expect(standardError([1])).toBeNaN();
  });
});
