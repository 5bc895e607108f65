import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { ConfigError } from '../../src/core/errors.js';
import { flatKeys } from '../../src/config/earl/keys.js';
import { referencedFile } from '../../src/config/load.js';
import { cannotRunYet, dependencies } from '../../src/config/models.js';
import { testFolder } from '../support/folder.js';
import { expectLines, loadEvaluated } from './evaluated.js';
import { loadTrained } from './trained.js';

const folder = testFolder('flat');
const env = { APP__REWARD_FUNCTION_API_BASE: 'http://judge:4877', APP__RUN_NAME: 'same' };
const flat = 'test/config/fixtures/earl_flat.jsonnet';
const whole = readFileSync(flat, 'utf8');
const tiny = ['configs/lib/tiny.libsonnet'];

function write(name: string, text: string): string {
  const file = join(folder, name);
  writeFileSync(file, text);
  return file;
}

/** The fixture without some of its keys. */
function without(...keys: string[]): string {
  return write('without.jsonnet', whole.replace(new RegExp(`^ {2}(${keys.join('|')}):.*\n`, 'gm'), ''));
}

/** The fixture with these fields over its own, as a file of its own. */
function fileWith(fields: string): string {
  return write('with.jsonnet', `(import '${process.cwd()}/${flat}') + { ${fields} }`);
}

async function messageOf(sets: string[], file = flat, overlays: string[] = []): Promise<string> {
  try {
    await loadEvaluated({ file, overlays, sets, env });
  } catch (error) {
    if (error instanceof ConfigError) return error.message.replaceAll(folder, '/tmp');
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

  it('is shown whole by the fixture', () => {
    expect(flatKeys.filter((key) => !whole.includes(`  ${key}: `))).toEqual([]);
  });

  it('names what has no meaning here, with the reason, in one warning', async () => {
    const { warnings } = await loadEvaluated({ file: flat, sets: ['max_completion_len=2048'], env });
    expect(warnings.filter((warning) => warning.startsWith('ignored'))).toEqual([
      expect.stringMatching(/max_completion_len \(.*vllm_gpu_memory_utilization \(no vLLM is started/),
    ]);
  });

  it('gives the share of the memory to the vLLM that is started with the run', async () => {
    const sets = [
      'rollout.engine={"type": "vllm", "serve": {}}',
      'policy.lora={}',
      'policy.emu3_use_logit_processor=false',
    ];
    const { settings, warnings } = await loadTrained({ file: flat, sets, env });
    expect(settings).toMatchObject({ rollout: { engine: { serve: { gpu_memory_utilization: 0.3 } } } });
    expect(warnings.join()).not.toContain('vllm_gpu_memory_utilization');
    const own = await loadTrained({ file: flat, sets: [...sets, 'vllm_gpu_memory_utilization=0.5'], env });
    expect(own.settings).toMatchObject({ rollout: { engine: { serve: { gpu_memory_utilization: 0.5 } } } });
  });

  it('has the defaults of EARL where a file leaves a key out', async () => {
    const required =
      /^ {2}(train_paths_file|val_paths_file|base_exp_dir|model_path|tokenizer_path|assistant_prefill|learning_rate|num_iterations|kl_coeff|temperature|per_device_batch_size|episodes_per_iteration|generations_per_sample|max_response_tokens|top_p|top_k|model_context_size|reward_function_api_base): /;
    const lines = whole.split('\n').filter((line) => !line.startsWith('  ') || required.test(line));
    const file = write('least.jsonnet', lines.join('\n'));
    const { settings, warnings } = await loadTrained({ file, env });
    expect(settings).toMatchObject({
      run_name: 'least',
      seed: 42,
      policy: { model: { revision: 'main' } },
      algorithm: { train_tokens: 'all' },
      reward: { mode: 'viescore', also_compute: ['ground_score'], model: 'Qwen/Qwen2.5-VL-72B-Instruct' },
      track: { log_episodes_every_n_iterations: 20, push_to_hub: null },
      checkpoint: { save_every_n_iterations: 2000, keep_every_n_iterations: null },
    });
    expect(warnings).toContain(
      'save_checkpoints_every_n_iterations is null, which saves nothing in EARL; here the end of the run is saved',
    );
  });

  it('has what EARL fixes in code', async () => {
    const { settings } = await loadTrained({ file: flat, env });
    expect(settings).toMatchObject({
      optimizer: { betas: [0.9, 0.999], eps: 1e-8, weight_decay: 0, max_grad_norm: 1, gradient_checkpointing: true },
      reward: { timeout_s: 1000, max_reply_tokens: { viescore: 1400, ground_score: 1300 } },
    });
  });

  it('is not what a file is in whose keys are those of both forms', async () => {
    await expect(
      loadEvaluated({ file: write('none.jsonnet', "{ run_name: 'x', num_iterations: 3 }"), env }),
    ).rejects.toThrow('task: missing');
  });

  it('loads with an empty list of training files, and without a model, as a base for others', async () => {
    const { settings } = await loadTrained({ file: flat, sets: ['train_paths_file=[]', 'model_path=null'], env });
    expect(settings.data.train).toEqual([]);
    expect(cannotRunYet(settings)).toEqual([
      expect.stringContaining('train_paths_file'),
      expect.stringContaining('model_path'),
    ]);
  });

  it('takes a model that exists as a path', async () => {
    const { settings } = await loadTrained({
      file: flat,
      sets: ['model_path=src/config', 'tokenizer_path=./nowhere/at/all', 'model_revision=v1'],
      env,
    });
    expect(settings).toMatchObject({ policy: { model: 'src/config', tokenizer: './nowhere/at/all' } });
  });

  it('takes the run name NONE for the name of the file', async () => {
    const named = await loadTrained({ file: flat, env: { ...env, APP__RUN_NAME: 'NONE' } });
    expect(named.settings.run_name).toBe('earl_flat');
    // As in EARL, where Jsonnet has seen the variable by then.
    expect(named.settings.track.push_to_hub?.repo_id).toBe('imged_rl__NONE');
    for (const name of ['none', 'None', 'null']) {
      const { settings } = await loadTrained({ file: flat, sets: [`run_name=${name}`], env });
      expect(settings.run_name).toBe('earl_flat');
    }
  });

  it.each(['http://judge:4877/', 'http://judge:4877/v1/'])('normalises the endpoint %s', async (base) => {
    const { settings } = await loadTrained({ file: flat, sets: [`reward_function_api_base=${base}`], env });
    expect(settings).toMatchObject({ reward: { endpoint: 'http://judge:4877/v1' } });
  });

  it('takes a file for the one that names the host of the judge', async () => {
    const here = write('judge_node.txt', 'node7\n');
    for (const file of [here, '/not/there/yet', 'package.json']) {
      const { settings } = await loadTrained({ file: flat, sets: [`reward_function_api_base=${file}`], env });
      expect(settings).toMatchObject({ reward: { endpoint: { node_file: file, port: 4877 } } });
    }
  });

  it.each(['null', 'NONE', ''])('has no judge where the endpoint is %s', async (base) => {
    const sets = [`reward_function_api_base=${base}`];
    expect(await messageOf(sets)).toMatch(/^\(--set\) reward_function_api_base: empty, but reward 'viescore' needs a/);
  });

  it.each<readonly [string, readonly string[], unknown]>([
    ['text', ['text_only_steps=7'], { tokens: 'text', cycle_steps: 10, steps: 7 }],
    ['text', ['text_only_cycle_steps=5'], { tokens: 'text', cycle_steps: 5, steps: 5 }],
    ['vision', ['vision_only_steps=3', 'text_only_steps=2'], { tokens: 'vision', cycle_steps: 10, steps: 3 }],
  ])('trains %s tokens only, with %s', async (tokens, sets, expected) => {
    const { settings } = await loadTrained({ file: flat, sets: [`train_${tokens}_tokens_only=true`, ...sets], env });
    expect(settings.algorithm).toMatchObject({ train_tokens: expected });
  });

  it.each(['sqrt(viescore_pqxground_score)', 'sqrt(viescore_pq * ground_score)'])(
    "accepts the mode %s, and records VIEScore's other half",
    async (mode) => {
      const sets = [`reward_final_reward=${mode}`, 'reward_compute_ground_score=true'];
      const { settings } = await loadTrained({ file: flat, sets, env });
      expect(settings).toMatchObject({
        reward: { mode: 'sqrt(viescore_pqxground_score)', also_compute: ['viescore'] },
      });
    },
  );

  it('gives coefficients to their files', async () => {
    const of = async (coefficients: string): Promise<unknown> => {
      const sets = ['train_paths_file=["a","b"]', `coefficients=${coefficients}`];
      const { settings } = await loadTrained({ file: flat, sets, env });
      return settings.data.train.map(({ path, coefficient }) => [path, coefficient]);
    };
    expect(await of('[2,0.5]')).toEqual([
      ['a', 2],
      ['b', 0.5],
    ]);
    expect(await of('[2,null]')).toEqual([
      ['a', 2],
      ['b', 1],
    ]);
    expect(await of('[null,null]')).toEqual([
      ['a', null],
      ['b', null],
    ]);
  });

  it('saves and keeps checkpoints like EARL by default', async () => {
    const of = async (...sets: string[]): Promise<unknown> => {
      const { settings } = await loadTrained({ file: flat, sets, env });
      return [settings.checkpoint.save_every_n_iterations, settings.checkpoint.keep_every_n_iterations];
    };
    expect(await of('save_checkpoints_every_n_iterations=null')).toEqual([2000, null]);
    expect(await of('keep_checkpoints_every_n_iterations=null')).toEqual([100, 100]);
    expect(await of('save_checkpoints_every_n_iterations=50')).toEqual([50, 100]);
  });

  it.each(['push_to_hub_every_n_iterations', 'push_to_hub_repo_id'])('publishes nothing without %s', async (key) => {
    expect((await loadTrained({ file: flat, env })).settings.track.push_to_hub).toEqual({
      every_n_iterations: 100,
      repo_id: 'imged_rl__same',
      private: true,
    });
    expect((await loadTrained({ file: flat, sets: [`${key}=null`], env })).settings.track.push_to_hub).toBeNull();
  });
});

describe("what stands over EARL's flat form", () => {
  it('canonical keys, set on the command line', async () => {
    const sets = ['optimizer.learning_rate=1', 'data.train.0.coefficient=3', 'reward.mode=ground_score', 'seed=4'];
    const { settings } = await loadTrained({ file: flat, sets, env });
    expect(settings).toMatchObject({
      seed: 4,
      optimizer: { learning_rate: 1, per_device_batch_size: 8 },
      data: { train: [{ path: 'data/simple/list/tokenized_datalist.json', coefficient: 3 }] },
      reward: { mode: 'ground_score', also_compute: ['viescore'] },
    });
  });

  it('terms in place of the final reward', async () => {
    const sets = ['reward.terms=[{"name":"viescore","weight":0.5},{"name":"jpeg_size","weight":0.5}]'];
    const { settings } = await loadTrained({ file: flat, sets, env });
    expect(settings).toMatchObject({ reward: { mode: null, terms: [{ name: 'viescore' }, { name: 'jpeg_size' }] } });
  });

  it('an overlay with canonical keys, over which flat ones may be set', async () => {
    const overlays = [write('over.libsonnet', '{ optimizer+: { learning_rate: 1, eps: 1e-6 } }')];
    const over = await loadTrained({ file: flat, overlays, env });
    expect(over.settings.optimizer).toMatchObject({ learning_rate: 1, eps: 1e-6, per_device_batch_size: 8 });
    const set = await loadTrained({ file: flat, overlays, sets: ['learning_rate=2'], env });
    expect(set.settings.optimizer).toMatchObject({ learning_rate: 2, eps: 1e-6 });
  });

  it.each([
    ['a file without reasoning', 'sft_s', 96, '<|image start|>'],
    ['a thinking file', 'sft_think_s', 160, ' Well. <|start thinking|>'],
  ])('the laptop size, for %s', async (_name, start, context, prefill) => {
    const file = fileWith(`assistant_prefill: '${prefill}'`);
    const config = await loadTrained({ file, overlays: tiny, env });
    expect(config.settings).toMatchObject({
      policy: { model_context_size: context, assistant_prefill: prefill },
      optimizer: { learning_rate: 4e-4, gradient_checkpointing: true },
      reward: { endpoint: 'embedded', timeout_s: 120, max_reply_tokens: { viescore: 400, ground_score: 700 } },
      data: { train: [{ path: 'data/tiny/s/prompts/list/tokenized_datalist.json', coefficient: null }] },
    });
    expect(cannotRunYet(config.settings)).toEqual([]);
    // Its starts are those of the family, although it lies elsewhere.
    const made = dependencies(config.settings).map((reference) => [reference.run, referencedFile(config, reference)]);
    expect(made).toEqual(['tiny_vq', start].map((run) => [run, `configs/${run}.jsonnet`]));
  });

  it('the laptop size, on labeled prompts for a reward that compares with the answer', async () => {
    const file = fileWith("reward_final_reward: 'ground_score', reward_compute_ground_score: true");
    const { settings } = await loadTrained({ file, overlays: tiny, env });
    expect(settings.data.train[0].path).toContain('/truth/');
  });

  it('does not let the folder of the data into the hash', async () => {
    const here = await loadTrained({ file: flat, env });
    const moved = await loadTrained({ file: flat, env: { ...env, APP__DATA_DIR: '/mnt/data' } });
    expect(moved.settings.data.train[0].path).toBe('/mnt/data/simple/list/tokenized_datalist.json');
    expect(moved.resultHash).toBe(here.resultHash);
    const set = await loadTrained({ file: flat, sets: ['data.dir=/elsewhere'], env });
    expect(set.resultHash).toBe(here.resultHash);
    expect(set.warnings).toContain(
      'data.dir has no effect, because the paths in train_paths_file and val_paths_file are complete',
    );
    const other = await loadTrained({ file: flat, sets: ['train_paths_file=["data/other/list.json"]'], env });
    expect(other.resultHash).not.toBe(here.resultHash);
  });
});

describe("an error in EARL's flat form", () => {
  it('names its own keys and lines', async () => {
    await expectLines(
      messageOf(
        [],
        fileWith(
          "episodes_per_iteration: 100, learning_rate: 'fast', text_only_steps: 0, train_text_tokens_only: true",
        ),
      ),
      '(/tmp/with.jsonnet:1) learning_rate: found "fast"; allowed: a number',
      'text_only_steps: found 0; allowed: a number >= 1',
      'episodes_per_iteration: found 100; allowed: a multiple of',
      'episodes_per_iteration: found 100; allowed: a multiple of',
    );
    await expectLines(
      messageOf(['top_p=2', 'coefficients=[-1]', 'model_revision=3', 'optimizer.eps=-1']),
      'optimizer.eps: found -1; allowed: a number > 0',
      'top_p: found 2; allowed: a number <= 1',
      'model_revision: found 3; allowed: a string (--set takes',
      'coefficients.0: found -1; allowed: a number > 0',
    );
  });

  it('names canonical keys where these are set', async () => {
    await expectLines(
      messageOf(['optimizer.learning_rate=-1', 'policy.model={"hub":"x"}']),
      'optimizer.learning_rate: found -1; allowed: a number > 0',
      'policy.model.hub: found "x"; allowed: a Hub id such as',
    );
  });

  it('names each key that it leaves out and EARL demands', async () => {
    await expectLines(
      messageOf([], without('learning_rate', 'tokenizer_path', 'kl_coeff', 'num_iterations')),
      'tokenizer_path: missing, and EARL has no default for it; set',
      'learning_rate: missing, and EARL has no default for it; set it,',
      'num_iterations: missing, and EARL has no default for it; set it',
      'kl_coeff: missing, and EARL has no default for it; set it, or',
    );
    const sets = ['optimizer={"learning_rate":1}'];
    expect(await messageOf(sets, without('learning_rate', 'per_device_batch_size'))).toBe('no error');
  });

  it('names unknown keys with the nearest of its own', async () => {
    await expectLines(
      messageOf([], fileWith('emu3_use_logits_processor: true, optimzer: {}, zzz: 1')),
      'emu3_use_logits_processor: unknown key; did you mean',
      'optimzer: unknown key; did you mean optimizer?',
      'zzz: unknown key; allowed: algorithm, assistant_prefill,',
    );
    await expectLines(messageOf(['episodes_per_iteratoin=8']), 'episodes_per_iteratoin: unknown key; did you mean');
  });

  it('reports which form has both', async () => {
    await expectLines(
      messageOf([], fileWith('optimizer: { learning_rate: 1 }')),
      '(test/config/fixtures/earl_flat.jsonnet:13) learning_rate: also given as optimizer.learning_rate',
    );
    await expectLines(
      messageOf(['learning_rate=1', 'optimizer.learning_rate=1']),
      'learning_rate: also set as optimizer.learning_rate; keep',
    );
  });

  it('rejects a final reward that no flag covers', async () => {
    await expectLines(
      messageOf(['reward_final_reward=ground_score']),
      'reward_compute_ground_score: found false; allowed: true,',
    );
  });

  it('rejects coefficients that do not match the files', async () => {
    await expectLines(messageOf(['coefficients=[1,2]']), 'coefficients: found 2 for 1 in train_paths_file; allowed:');
    await expectLines(
      messageOf(['train_paths_file=a', 'val_coefficients=1']),
      'train_paths_file: found "a"; allowed: a list',
      'val_coefficients: found 1; allowed: a list',
    );
  });

  it('refuses to train both kinds of token only', async () => {
    await expectLines(
      messageOf(['train_text_tokens_only=true', 'train_vision_tokens_only=true', 'reward_compute_viescore=1']),
      'train_vision_tokens_only: found true; allowed: false beside',
      'reward_compute_viescore: found 1; allowed: true or false',
    );
  });

  it('says in which form a key of it belongs elsewhere', async () => {
    const file = write(
      'mixed.jsonnet',
      `(import '${process.cwd()}/configs/sft_s__rl_s.jsonnet') + { reward_function_api_base: 'x' }`,
    );
    await expect(loadEvaluated({ file, env })).rejects.toThrow(
      /reward_function_api_base: .*in this form: reward\.endpoint/,
    );
  });
});
