import { expect, it } from 'vitest';
import { mismatchAlarmOf } from '../../../src/recipes/ip_adapter/open.js';

it('raises an alarm at a tenth of what clips, or would clip, a step', () => {
  expect(mismatchAlarmOf({ clip_range: 2e-3 })).toBeCloseTo(2e-4, 12);
  expect(mismatchAlarmOf({ clip_range: null })).toBeCloseTo(1e-5, 12);
});
