import { expect, it } from 'vitest';
import type { WeightsOf } from '../../../src/policies/policy.js';
import { readStates } from '../../../src/recipes/edit_response/drawing.js';
import { smallSettings } from './small.js';

it.each([
  [{}, ['current', 'average']],
  [{ read_by: 'start' }, ['reference', 'reference']],
])('reads what was written with the weights that %j says', async (environment, expected) => {
  const asked: WeightsOf[] = [];
  const policy = {
    read: (_: unknown, of: WeightsOf) => {
      asked.push(of);
      return Promise.resolve([]);
    },
  };
  const read = readStates(smallSettings({ policy: { init: null, model: 'm' }, environment }).environment!, policy);
  await read([], 'current');
  await read([], 'average');
  expect(asked).toEqual(expected);
});
