import { afterAll, describe, expect, inject, it } from 'vitest';
import { Place } from './editrl.js';

/** Each start's RL runs, in an order in which no start is made twice. */
const FAMILY = [
  'sft_s__rl_s',
  'sft_s__rl_c',
  'sft_s__rl_sc',
  'sft_sc__rl_c',
  'sft_sc__rl_sc',
  'sft_sc2stage__rl_c',
  'sft_sc2stage__rl_sc',
  'sft_think_s__rl_s',
  'sft_think_s__rl_c',
  'sft_think_s__rl_sc',
];

describe('the whole family', () => {
  const place = Place.make(inject('template'));
  afterAll(() => place.remove());

  it.each(FAMILY)('%s trains to its end, with the starts that it needs', async (name) => {
    const ended = await place.train(name);
    expect(ended.err).toBe('');
    expect(ended.code).toBe(0);
    expect(place.state(name)).toMatchObject({ state: 'finished', iteration: 6 });
    const last = place.metrics(name).at(-1);
    expect(last?.['validation/sampled/mean']).toBeTypeOf('number');
    expect(last?.['validation/sampled/unscored']).toBe(0);
  });
});
