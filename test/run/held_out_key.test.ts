import { expect, it } from 'vitest';
import { heldOutKey, parseHeldOutKey } from '../../src/run/episodes.js';

it('says where an episode is in its evaluation, whose sets may have slashes in their names', () => {
  const place = { iteration: 40, set: 'a/b', sampling: 'greedy', prompt: 7 };
  expect(heldOutKey(place)).toBe('validation/40/a/b/greedy/7');
  expect(parseHeldOutKey(heldOutKey(place))).toEqual(place);
});

it.each(['3/1/0', 'validation/40/greedy/7', 'validation/x/s/greedy/7', 'validation/40/s/greedy/7/edit', undefined])(
  'is none in %s',
  (key) => {
    expect(parseHeldOutKey(key)).toBeNull();
  },
);
