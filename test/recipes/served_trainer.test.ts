/** Which settings of a training server that is started with a run can work. */
import { describe, expect, it } from 'vitest';
import { servedTrainerRules, trainerServeOf } from '../../src/recipes/shared/tokens/rules.js';
import type { RunSettings } from '../../src/schema/run.js';
import { trainerAnywhere } from '../../src/schema/trainer.js';

function settings(serve: object | null, more: object = {}, devices: number[] | null = null) {
  const trainer = trainerAnywhere.parse({ type: 'tinker', base_model: 'base', serve, ...more });
  return { policy: { trainer, tokenizer: '/folder' }, launch: { devices, processes: 1 } };
}

function problems(...of: Parameters<typeof settings>): string[] {
  return servedTrainerRules.flatMap((rule) => rule(settings(...of)).map(({ key, message }) => `${key}: ${message}`));
}

describe('a training server that is started with the run', () => {
  it('is no other one than that which runs', () => {
    expect(problems({})).toEqual([]);
    expect(problems(null, { base_url: 'http://host:8000' })).toEqual([]);
    // TINKER_BASE_URL may name it.
    expect(problems(null)).toEqual([]);
    expect(problems({}, { base_url: 'http://host:8000' })).toEqual([
      'policy.trainer: found both base_url (http://host:8000) and serve; allowed: base_url, the address of a training server that runs, or serve: {}, to start one with the run',
    ]);
  });

  it.each([['--port'], ['--dir=/elsewhere'], ['--rank'], ['--mode=jax']])('is not told %s by a flag', (flag) => {
    expect(problems({ flags: ['--nodes', '2', flag] })[0]).toContain(`policy.trainer.serve.flags: found ${flag}`);
    expect(problems({ flags: ['--nodes', '2', '--models'] })).toEqual([]);
  });

  it('has a backend and an environment of SkyRL only where that is started', () => {
    expect(problems({ mode: 'jax', python: '/env' })).toEqual([]);
    expect(problems({ command: ['serve'], flags: ['--fast'] })).toEqual([]);
    const found = problems({ command: ['serve'], mode: 'jax', python: '/env' });
    expect(found.map((text) => text.split(':')[0])).toEqual([
      'policy.trainer.serve.mode',
      'policy.trainer.serve.python',
    ]);
  });

  it('has GPUs that the run does not name for itself', () => {
    expect(problems({ devices: [0, 1] }, {}, [2])).toEqual([]);
    expect(problems({ devices: [0, 1] })).toEqual([]);
    expect(problems({ devices: [0, 1] }, {}, [1, 2])).toEqual([
      'policy.trainer.serve.devices: found 1, which the run itself uses (launch.devices); allowed: GPUs of its own',
    ]);
  });

  it('is found in settings of any recipe', () => {
    const of = (policy: object): unknown => trainerServeOf({ policy } as unknown as RunSettings);
    expect(of(settings({ flags: ['--a'] }).policy)).toMatchObject({ flags: ['--a'], command: null });
    expect(of(settings(null).policy)).toBeNull();
    expect(of({ trainer: { type: 'onnx' } })).toBeNull();
    expect(of({})).toBeNull();
  });
});
