/** How a recipe is put together from its parts. */
import { describe, expect, it } from 'vitest';
import { z } from 'zod';
import { preset, startMissing, type Part } from '../../src/recipes/recipe.js';
import type { Rule } from '../../src/schema/rules.js';
import type { TrainedSettings } from '../../src/schema/run.js';

const says =
  (message: string): Rule<TrainedSettings> =>
  () => [{ key: 'a', message }];
const learning = (algorithm: object): TrainedSettings =>
  ({ algorithm, optimizer: { per_device_batch_size: 8 } }) as unknown as TrainedSettings;

const policy: Part = {
  rules: [says('policy')],
  models: ['policy.tokenizer'],
  tokenizers: ['policy.tokenizer'],
  learns: {
    engine: 'policy.engine',
    start: 'policy.model',
    parameters: () => 10,
    memory: () => 1000,
    shape: () => null,
    rows: () => 64,
  },
  needs: () => [{ kind: 'ffmpeg' }],
  warnings: () => ['of the policy'],
};
const environment: Part = {
  rules: [says('environment')],
  models: ['environment.model'],
  engines: ['environment.engine'],
  needs: () => [{ kind: 'vision_tokenizer', folder: 'f' }],
  imageMemory: () => 20,
  missing: () => ['of the environment'],
};

describe('a recipe of parts', () => {
  const usedAt = { key: 'policy.model', of: 'parts' };
  const given = { name: 'parts', schema: z.object({}), pipeline: null, usedAt };
  const recipe = preset({ ...given, parts: [environment, policy, { imageMemory: () => 3 }] });
  const settings = learning({ type: 'sft', sft: { batch_size: 20, patience: 3 } });

  it('says what they say, in their order', () => {
    expect(recipe.broken({}).map(({ message }) => message)).toEqual(['environment', 'policy']);
    expect(recipe.needs(settings, () => null).map(({ kind }) => kind)).toEqual(['vision_tokenizer', 'ffmpeg']);
    expect([recipe.warnings(settings), recipe.missing(settings)]).toEqual([['of the policy'], ['of the environment']]);
    expect(recipe.tokenizers).toEqual(['policy.tokenizer']);
  });

  it('makes what it starts from last, and names the engine of what learns first', () => {
    expect(recipe.models).toEqual(['environment.model', 'policy.tokenizer', 'policy.model']);
    expect(recipe.engines).toEqual(['policy.engine', 'environment.engine']);
  });

  it('takes the memory of all of them, and none where what learns is not known', () => {
    expect([recipe.memory(settings, () => null), recipe.imageMemory(settings, () => null)]).toEqual([1023, 23]);
    const unknown = { ...policy, learns: { ...policy.learns!, memory: () => null } };
    expect(preset({ ...given, parts: [environment, unknown] }).memory(settings, () => null)).toBeNull();
  });

  it('counts steps and micro-batches by its algorithm', () => {
    const rewarded = learning({ type: 'grpo', inner_epochs: 3, minibatches: 2 });
    expect([recipe.stepsPerIteration(settings), recipe.stepsPerIteration(rewarded)]).toEqual([1, 6]);
    expect([recipe.microBatches(settings), recipe.microBatches(rewarded)]).toEqual([3, 4]);
    expect([recipe.patience(settings)?.value, recipe.patience(rewarded)]).toEqual([3, null]);
  });

  it('scores nothing without a reward, and is overridden by what it says itself', () => {
    expect(recipe.reward(settings)).toBeNull();
    expect(preset({ ...given, parts: [policy], microBatches: () => 1 }).microBatches(settings)).toBe(1);
  });
});

it('a policy with neither a model nor an architecture cannot run yet', () => {
  const found = startMissing({ policy: { model: null, init: null } }, ' (or model_path)');
  expect(found).toEqual([
    'policy.model is null: set it to a local path, {hub, revision} or {run, config} (or model_path), or set policy.init to start from random weights',
  ]);
  expect(startMissing({ policy: { model: null, init: {} } })).toEqual([]);
});
