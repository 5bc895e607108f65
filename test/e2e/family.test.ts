import { afterAll, describe, expect, inject, it } from 'vitest';
import { rlRuns } from '../config/family_cases.js';
import { Place } from './editrl.js';
import { EVERYTHING } from './recipes/contract.js';

/** Starts in two stages, and starts that reason; the others differ in their prompts alone. */
const EACH_START = ['sft_sc2stage__rl_c', 'sft_think_s__rl_sc'];

describe('the whole family', () => {
  const place = Place.make(inject('template'));
  afterAll(() => place.remove());

  it.each(EVERYTHING ? rlRuns : EACH_START)('%s trains to its end, with the starts that it needs', async (name) => {
    const ended = await place.train(name);
    expect(ended.err).toBe('');
    expect(ended.code).toBe(0);
    expect(place.state(name)).toMatchObject({ state: 'finished', iteration: 6 });
    const last = place.metrics(name).at(-1);
    expect(last?.['validation/sampled/mean']).toBeTypeOf('number');
    expect(last?.['validation/sampled/unscored']).toBe(0);
  });

  it.each(['tiny_vq', 'sft_s', 'sft_s__rl_s'])('%s has told the learning rate of its steps', (name) => {
    const rates = place
      .metrics(name)
      .flatMap((metrics) => (metrics['policy/learning_rate'] as number | undefined) ?? []);
    expect(rates.length).toBeGreaterThan(0);
    expect(Math.min(...rates)).toBeGreaterThan(0);
  });
});
