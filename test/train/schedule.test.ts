import { describe, expect, it } from 'vitest';
import { learningRateAt, type ScheduleOptions } from '../../src/compute/onnx/optimizer.js';
import { scheduleOf } from '../../src/train/update.js';
import { loadTrained } from '../config/trained.js';

const overlays = ['configs/lib/tiny.libsonnet'];

async function of(config: string, ...sets: string[]): Promise<ScheduleOptions> {
  return scheduleOf((await loadTrained({ file: `configs/${config}.jsonnet`, overlays, env: {}, sets })).settings);
}

describe('the learning rate of a run', () => {
  it('stays after warm-up by default', async () => {
    expect(await of('sft_s')).toEqual({ schedule: 'constant', learningRate: 1e-3, warmupSteps: 20 });
  });

  it.each([
    ['sft_s', 1000, 20, 1e-3],
    ['tiny_vq', 1500, 0, 3e-3],
    ['sft_s__rl_s', 80, 0, 4e-4],
  ])('of %s falls over its %i steps', async (config, totalSteps, warmupSteps, learningRate) => {
    const falls = ['optimizer.schedule=cosine', 'optimizer.min_learning_rate_ratio=0.5'];
    const options = await of(config, ...falls);
    expect(options).toEqual({ schedule: 'cosine', learningRate, warmupSteps, totalSteps, floor: learningRate / 2 });
    expect(learningRateAt(totalSteps - 1, options)).toBeGreaterThan(learningRate / 2);
    expect(learningRateAt(totalSteps, options)).toBeCloseTo(learningRate / 2, 12);
  });

  it('counts each epoch over the episodes of an iteration', async () => {
    expect(await of('sft_s__rl_s', 'optimizer.schedule=linear', 'algorithm.inner_epochs=3')).toMatchObject({
      schedule: 'linear',
      totalSteps: 240,
      floor: 0,
    });
  });
});
