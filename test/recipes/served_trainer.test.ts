/** Which settings of a training server that is started with a run can work. */
import { describe, expect, it } from 'vitest';
import { servedTrainerRules } from '../../src/recipes/shared/tokens/rules.js';
import { trainerAnywhere } from '../../src/config/schema/trainer.js';

function settings(serve: object | null, more: object = {}, devices: number[] | null = null) {
  const trainer = trainerAnywhere.parse({ type: 'tinker', base_model: 'base', serve, ...more });
  return { policy: { trainer, tokenizer: '/folder' }, launch: { devices, processes: 1 } };
}

function problems(...of: Parameters<typeof settings>): string[] {
  return servedTrainerRules.flatMap((rule) => rule(settings(...of)).map(({ key, message }) => `${key}: ${message}`));
}

describe('a training server that is started with the run', () => {
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
      'policy.trainer.serve.devices: found 1, which the run itself uses (launch.devices); allowed: other GPUs',
    ]);
  });
});
