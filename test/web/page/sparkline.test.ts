import { describe, expect, it } from 'vitest';
import { placesOf, SPARKLINE, sparklineInWords } from '../../../src/web/page/format.js';

const { width, height, margin } = SPARKLINE;

describe('a sparkline', () => {
  it('spans its picture: iterations from left to right, the highest value at the top', () => {
    expect(
      placesOf([
        [0, 1],
        [30, 4],
        [60, 2.5],
      ]),
    ).toEqual([
      [margin, height - margin],
      [width / 2, margin],
      [width - margin, height / 2],
    ]);
  });

  it('is flat where nothing changes, and a point where there is one', () => {
    expect(
      placesOf([
        [5, 3],
        [10, 3],
      ]),
    ).toEqual([
      [margin, height / 2],
      [width - margin, height / 2],
    ]);
    expect(placesOf([[5, 3]])).toEqual([[width / 2, height / 2]]);
    expect(placesOf([])).toEqual([]);
  });

  it('says in words where it begins, ends and turns', () => {
    expect(
      sparklineInWords([
        [0, 1.23456],
        [30, 4],
        [60, 2.5],
      ]),
    ).toBe('from 1.235 at iteration 0 to 2.5 at iteration 60, between 1.235 and 4');
    expect(sparklineInWords([])).toBe('');
  });
});
