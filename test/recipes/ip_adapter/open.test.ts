import { expect, it } from 'vitest';
import { flowRollout, flowValidation } from '../../../src/schema/training.js';
import { mismatchAlarmOf, sampledIn, samplingsOf } from '../../../src/recipes/ip_adapter/open.js';

it('raises an alarm at a tenth of what clips, or would clip, a step', () => {
  expect(mismatchAlarmOf({ clip_range: 2e-3 })).toBeCloseTo(2e-4, 12);
  expect(mismatchAlarmOf({ clip_range: null })).toBeCloseTo(1e-5, 12);
});

it('slides its window with the iterations of training, and never in held-out evaluation', () => {
  const window = { size: 2, range: [0, 5] };
  const settings = (slide?: object) => ({
    policy: { model_type: 'tiny' as const },
    validation: flowValidation.parse({}),
    rollout: flowRollout.parse({ sde_window: { ...window, slide } }),
  });
  const sliding = settings({ every: 10 });
  expect(sampledIn(10, sliding).window).toEqual({ ...window, slid: { stride: 1, moves: 0 } });
  expect(sampledIn(31, sliding).window).toEqual({ ...window, slid: { stride: 1, moves: 3 } });
  expect(samplingsOf(sliding).sampled.window).toEqual(window);
  expect(sampledIn(31, settings()).window).toEqual(window);
  expect(sampledIn(31, sliding)).not.toHaveProperty('noised');
  expect(sampledIn(31, sliding, { levels: 2 }).noised).toEqual({ levels: 2 });
});
