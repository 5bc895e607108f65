import { expect, it } from 'vitest';
import { belowFolder } from '../../src/config/hash.js';

it('names a path below the data folder relative to it, and any other as it is', () => {
  expect(belowFolder('/data', '/data/edits/train')).toBe('edits/train');
  expect(belowFolder('/data', '/other/train')).toBe('/other/train');
  // A neighbour whose name begins alike.
  expect(belowFolder('/data', '/data2/train')).toBe('/data2/train');
  expect(belowFolder('data', 'other')).toBe('other');
  expect(belowFolder('/data', 'train')).toBe('train');
});
