import { describe, expect, it } from 'vitest';
import { editDistance } from '../../src/core/nearest.js';

describe('the edit distance', () => {
  it.each([
    ['', '', 0],
    ['', 'abc', 3],
    ['abc', '', 3],
    ['kitten', 'sitting', 3],
    ['flaw', 'lawn', 2],
    ['a\u{1F600}', 'a', 1],
    ['\u{1F600}', '\u{1F601}', 1],
    ['helloworld', 'worldhello', 8],
    ['grop', 'grpo', 2],
  ])('from %j to %j', (from, to, expected) => {
    expect(editDistance([...from], [...to])).toBe(expected);
    expect(editDistance([...to], [...from])).toBe(expected);
  });

  it.each([
    ['grop', 'grpo', 1],
    ['', 'abc', 3],
    ['kitten', 'sitting', 3],
    ['ab', 'ba', 1],
    // What was exchanged is not edited again.
    ['ca', 'abc', 3],
  ])('from %j to %j where neighbors may be exchanged', (from, to, expected) => {
    expect(editDistance([...from], [...to], { swaps: true })).toBe(expected);
    expect(editDistance([...to], [...from], { swaps: true })).toBe(expected);
  });

  it('is of any elements', () => {
    expect(editDistance(['red', 'square'], ['a', 'red', 'circle'])).toBe(2);
    expect(editDistance([1, 2, 3], [1, 3])).toBe(1);
  });
});
