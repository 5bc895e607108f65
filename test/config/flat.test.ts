import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { ConfigError } from '../../src/core/errors.js';
import { flatKeys } from '../../src/config/flat.js';
import { testFolder } from '../support/folder.js';
import { loadEvaluated } from './evaluated.js';
import { loadTrained } from './trained.js';

const folder = testFolder('flat');
const env = { APP__REWARD_FUNCTION_API_BASE: 'http://judge:4877', APP__RUN_NAME: 'same' };
const flat = 'test/config/fixtures/earl_flat.jsonnet';

async function messageOf(sets: string[]): Promise<string> {
  try {
    await loadEvaluated({ file: flat, sets, env });
  } catch (error) {
    if (error instanceof ConfigError) return error.message;
    throw error;
  }
  return 'no error';
}

describe("EARL's flat form", () => {
  it('gives the same settings as the canonical form', async () => {
    const translated = await loadEvaluated({ file: flat, env });
    const canonical = await loadEvaluated({ file: 'test/config/fixtures/earl_canonical.jsonnet', env });
    expect(translated.settings).toEqual(canonical.settings);
    expect(translated.resultHash).toBe(canonical.resultHash);
  });

  it('names what has no meaning here in a warning', async () => {
    const { warnings } = await loadEvaluated({ file: flat, env });
    expect(warnings[0]).toMatchInlineSnapshot(
      `"vllm_gpu_memory_utilization has no meaning here and is left out: rollouts run in this process, without vLLM"`,
    );
  });

  it('loads with an empty list of training files', async () => {
    const { settings } = await loadTrained({ file: flat, sets: ['train_paths_file=[]'], env });
    expect(settings.data.train).toEqual([]);
  });

  it('takes a model that exists as a path', async () => {
    const { settings } = await loadTrained({
      file: flat,
      sets: ['model_path=src/config', 'tokenizer_path=./nowhere/at/all'],
      env,
    });
    expect(settings).toMatchObject({ policy: { model: 'src/config', tokenizer: './nowhere/at/all' } });
  });

  it.each(['http://judge:4877', 'http://judge:4877/', 'http://judge:4877/v1', 'http://judge:4877/v1/'])(
    'normalises the endpoint %s',
    async (base) => {
      const { settings } = await loadTrained({ file: flat, sets: [`reward_function_api_base=${base}`], env });
      expect(settings).toMatchObject({ reward: { endpoint: 'http://judge:4877/v1' } });
    },
  );

  it.each(['sqrt(viescore_pqxground_score)', 'sqrt(viescore_pq*ground_score)', 'sqrt(viescore_pq * ground_score)'])(
    'accepts the mode %s',
    async (mode) => {
      const sets = [`reward_final_reward=${mode}`, 'reward_compute_ground_score=true'];
      const { settings } = await loadTrained({ file: flat, sets, env });
      expect(settings).toMatchObject({ reward: { mode: 'sqrt(viescore_pqxground_score)', also_compute: [] } });
    },
  );

  it('records a score that is computed besides', async () => {
    const { settings } = await loadTrained({ file: flat, sets: ['reward_compute_ground_score=true'], env });
    expect(settings).toMatchObject({ reward: { mode: 'viescore', also_compute: ['ground_score'] } });
  });

  it('gives coefficients to their files', async () => {
    const { settings } = await loadTrained({
      file: flat,
      sets: ['train_paths_file=["a","b"]', 'coefficients=[2,0.5]'],
      env,
    });
    expect(settings.data.train).toEqual([
      { path: 'a', coefficient: 2 },
      { path: 'b', coefficient: 0.5 },
    ]);
  });

  it('refuses a final reward that no flag covers', async () => {
    expect(await messageOf(['reward_final_reward=ground_score'])).toMatchInlineSnapshot(
      `"(test/config/fixtures/earl_flat.jsonnet:28) reward_compute_ground_score: found false; allowed: true, because reward_final_reward 'ground_score' needs it"`,
    );
  });

  it('refuses coefficients that do not match the files', async () => {
    expect(await messageOf(['coefficients=[1,2]'])).toMatchInlineSnapshot(
      `"(--set) coefficients: found 2 for 1 in train_paths_file; allowed: one for each, or none (each is then upsampled to the largest)"`,
    );
  });

  it('refuses a key that is given in both forms', async () => {
    expect(await messageOf(['optimizer.learning_rate=1'])).toMatchInlineSnapshot(
      `"(test/config/fixtures/earl_flat.jsonnet:11) learning_rate: also given as optimizer.learning_rate; keep one of the two"`,
    );
  });

  it('knows its own keys when one is misspelt', async () => {
    expect(await messageOf(['episodes_per_iteratoin=8'])).toMatchInlineSnapshot(
      `"(--set) episodes_per_iteratoin: unknown key; did you mean episodes_per_iteration (EARL's flat form)?"`,
    );
  });

  it('says in which form a key of it belongs elsewhere', async () => {
    const file = join(folder, 'mixed.jsonnet');
    writeFileSync(file, `(import '${process.cwd()}/configs/sft_s__rl_s.jsonnet') + { reward_function_api_base: 'x' }`);
    await expect(loadEvaluated({ file, env })).rejects.toThrow(
      /reward_function_api_base: .*in this form: reward\.endpoint/,
    );
  });

  it('is shown whole by the fixture', () => {
    const text = readFileSync(flat, 'utf8');
    expect(flatKeys.filter((key) => !text.includes(`  ${key}: `))).toEqual([]);
  });
});
