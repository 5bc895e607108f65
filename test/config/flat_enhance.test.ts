/** A file with the parameters of a program that rewrites prompts. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { loadConfig, type LoadedConfig } from '../../src/config/load.js';
import { testFolders } from '../support/folder.js';

const newFolder = testFolders('flat-enhance');

const besides = {
  num_iterations: 5,
  optimizer: { learning_rate: 1e-5 },
  environment: { type: 'model', model: '/models/painter' },
  data: { train: [{ path: 'data/prompts/challenging.txt' }], validation: [] },
};
const whole = {
  model_name: 'Qwen/Qwen2.5-7B-Instruct',
  device: 'auto',
  max_new_tokens: 60,
  temperature: 0.9,
  ...besides,
};

function load(content: object, sets: readonly string[] = []): Promise<LoadedConfig> {
  const file = join(newFolder(), 'rewriter.jsonnet');
  writeFileSync(file, JSON.stringify(content));
  return loadConfig({ file, sets, env: {} });
}

describe('a flat file of prompt enhancement', () => {
  it('means what its parameters mean, and CLIP rewards it', async () => {
    const { settings, warnings } = await load(whole);
    expect(settings).toMatchObject({
      task: 'prompt_enhance',
      run_name: 'rewriter',
      algorithm: { type: 'grpo' },
      policy: { model: { hub: 'Qwen/Qwen2.5-7B-Instruct', revision: 'main' }, engine: { provider: 'auto' } },
      rollout: { max_response_tokens: 60, temperature: 0.9 },
      reward: {
        terms: [
          {
            name: 'clip',
            weight: 1,
            model: { hub: 'openai/clip-vit-base-patch32', revision: 'main' },
            scale: 'half',
          },
        ],
        also_compute: ['prompt_quality'],
      },
      data: { dir: 'data' },
    });
    expect(warnings).toEqual([]);
  });

  it('has the defaults of the recipe where it says nothing, and a model of its own', async () => {
    const { settings } = await load({ max_new_tokens: 100, ...besides });
    expect(settings).toMatchObject({
      policy: { model: { hub: 'Qwen/Qwen2-VL-7B-Instruct' } },
      rollout: { max_response_tokens: 100, temperature: 0.7 },
    });
  });

  it('records what canonical keys say, where they say it', async () => {
    const reward = { terms: [{ name: 'clip', weight: 1, model: 'clip' }], also_compute: [] };
    expect((await load({ ...whole, reward })).settings).toMatchObject({ reward });
  });

  it("calls Apple's graphics WebGPU, and says so", async () => {
    const { settings, warnings } = await load({ ...whole, device: 'mps' });
    expect(settings).toMatchObject({ policy: { engine: { provider: 'webgpu' } } });
    expect(warnings).toEqual([expect.stringContaining("device 'mps' means WebGPU here")]);
  });

  it('is changed by both forms of its keys', async () => {
    const { settings } = await load(whole, ['max_new_tokens=30', 'policy.engine.provider=cpu']);
    expect(settings).toMatchObject({
      rollout: { max_response_tokens: 30 },
      policy: { engine: { provider: 'cpu' } },
    });
  });

  it.each([
    [{ device: 'tpu' }, 'device: found "tpu"; allowed: auto, cuda, mps, cpu'],
    [{ max_new_token: 5 }, 'max_new_token: unknown key; did you mean max_new_tokens?'],
    [{ rollout: { temperature: 1 } }, 'temperature: also given as rollout.temperature; keep one of the two'],
    [{ max_new_tokens: 0 }, 'max_new_tokens: found 0; allowed: a number >= 1'],
  ])('is refused with %j', async (change, message) => {
    await expect(load({ ...whole, ...change })).rejects.toThrow(message);
  });
});
