import { expect, it } from 'vitest';
import { flowRollout, flowValidation } from '../../../src/schema/training.js';
import {
  mismatchAlarmOf,
  requireHeldOnce,
  requireWholePicture,
  sampledIn,
  samplingsOf,
} from '../../../src/recipes/ip_adapter/open.js';
import { initConfig } from '../../../src/recipes/ip_adapter/task.js';

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

it('holds nothing in float16 on CUDA, though a config asked for the best provider', () => {
  expect(() => requireHeldOnce({ dtype: 'float16', provider: 'cuda' })).toThrow(/found 'float16' .* 'cuda'/);
  expect(() => requireHeldOnce({ dtype: 'float32', provider: 'cuda' })).not.toThrow();
  expect(() => requireHeldOnce({ dtype: 'float16', provider: 'webgpu' })).not.toThrow();
});

it('pays no regions to a model that paints the masked part alone', () => {
  const codec = { channels: 3, reduction: 1 };
  const init = {
    num_layers: 1,
    attention_head_dim: 12,
    num_attention_heads: 2,
    patch: 4,
    text_length: 3,
    ip_adapter: null,
  };
  const config = initConfig({ ...init, num_single_layers: 0, prediction: 'velocity', scratch: null } as never, codec);
  expect(() => requireWholePicture(config, codec)).not.toThrow();
  const alone = { ...config, in_channels: config.out_channels ?? 0 };
  expect(() => requireWholePicture(alone as typeof config, codec)).toThrow(
    "found a term with another credit than 'all' for a model that paints the masked part alone",
  );
});
