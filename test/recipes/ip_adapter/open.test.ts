import { expect, it } from 'vitest';
import { halvesIn } from '../../../src/core/half.js';
import { safetensorsPieces } from '../../../src/core/safetensors.js';
import { pixelCodec } from '../../../src/train/environments/image_codec.js';
import { flowConfigJson } from '../../../src/compute/nets/flow/config.js';
import { trainedPart } from '../../../src/train/policies/flow/load.js';
import { flowRollout, flowValidation } from '../../../src/config/schema/training.js';
import { startingModel } from '../../../src/recipes/ip_adapter/open.js';
import {
  mismatchAlarmOf,
  requireSingleCopy,
  sampledIn,
  samplingsOf,
} from '../../../src/recipes/shared/flow/rewards.js';
import { tinyConditions } from '../../../src/recipes/ip_adapter/conditions.js';
import type { IpAdapterSettings } from '../../../src/recipes/ip_adapter/settings.js';
import { config, smallFlow } from '../../train/policies/flow/small_flow.js';
import { writeCheckpoint } from '../../support/checkpoint.js';
import { testFolders } from '../../support/folder.js';
import { smallConfig } from '../small_config.js';

const newFolder = testFolders('ip-adapter-open');

const { smallSettings } = smallConfig<IpAdapterSettings>({
  run_name: 'small',
  task: 'ip_adapter',
  num_iterations: 1,
  algorithm: { type: 'grpo' },
  optimizer: { learning_rate: 1e-3 },
  rollout: { episodes_per_iteration: 8, generations_per_sample: 4 },
  policy: { model_type: 'tiny', engine: { provider: 'cpu' } },
  data: { train: [{ path: 'train' }], validation: [{ path: 'validation' }] },
  reward: { mode: 'ocr' },
});

it('raises an alarm at a tenth of what clips, or would clip, a step', () => {
  expect(mismatchAlarmOf({ clip_range: 2e-3 })).toBeCloseTo(2e-4, 12);
  expect(mismatchAlarmOf({ clip_range: null })).toBeCloseTo(1e-5, 12);
});

it('samples within its window in training and in held-out evaluation', () => {
  const window = { size: 2, range: [0, 5] };
  const settings = {
    policy: { model_type: 'tiny' as const },
    validation: flowValidation.parse({}),
    rollout: flowRollout.parse({ sde_window: window }),
  };
  expect(sampledIn(settings).window).toEqual(window);
  expect(samplingsOf(settings).sampled.window).toEqual(window);
  expect(sampledIn(settings)).not.toHaveProperty('noised');
  expect(sampledIn(settings, { levels: 2 }).noised).toEqual({ levels: 2 });
});

it.each([
  { train: 'adapter', lora: undefined },
  { train: 'lora', lora: { rank: 2 } },
])('holds what training of $train leaves frozen as policy.engine.dtype says', ({ train, lora }) => {
  const { weights } = smallFlow();
  const files = { 'config.json': flowConfigJson(config), 'policy.safetensors': safetensorsPieces(weights) };
  const model = writeCheckpoint(newFolder(), files);
  const start = (dtype: string) => {
    const settings = smallSettings({ policy: { model, train, lora, engine: { provider: 'cpu', dtype } } });
    return startingModel(settings, () => '', pixelCodec, tinyConditions);
  };
  expect([...halvesIn(start('float32').weights)]).toEqual([]);
  const held = start('float16');
  const trained = trainedPart(held);
  const frozen = [...held.weights].filter(([name, { shape }]) => shape.length > 1 && !trained.has(name));
  expect(frozen.length).toBeGreaterThan(0);
  expect([...halvesIn(held.weights)]).toEqual(frozen.map(([name]) => name));
});

it('holds nothing in float16 on CUDA, though a config asked for the best provider', () => {
  expect(() => requireSingleCopy({ dtype: 'float16', provider: 'cuda' })).toThrow(/found 'float16' .* 'cuda'/);
  expect(() => requireSingleCopy({ dtype: 'float32', provider: 'cuda' })).not.toThrow();
  expect(() => requireSingleCopy({ dtype: 'float16', provider: 'webgpu' })).not.toThrow();
});
