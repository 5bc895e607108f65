import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { z } from 'zod';
import { growable, diffSettings, resultText, textDigests } from '../../src/config/hash.js';
import { externalVariables, importClosure } from '../../src/config/jsonnet.js';
import { parseSet } from '../../src/config/sets.js';
import { nearest } from '../../src/core/nearest.js';
import { recipes } from '../../src/recipes/settings.js';
import { fieldsOf, markOf, unwrap } from '../../src/core/schema/walk.js';
import { testFolders } from '../support/folder.js';
import { loadEvaluated } from './evaluated.js';
import { loadTrained } from './trained.js';

const newFolder = testFolders('settings');
const base = { file: 'configs/sft_s__rl_s.jsonnet', overlays: ['configs/lib/tiny.libsonnet'], env: {} };
const load = (...sets: string[]) => loadTrained({ ...base, sets });

describe('loading', () => {
  it.each(['mine.yaml', 'mine.YML'])('rejects %s, as a config and as an overlay', async (name) => {
    const file = join(newFolder(), name);
    writeFileSync(file, 'rollout:\n  temperature: 0.7\n');
    const message = 'found a YAML file; allowed: Jsonnet or JSON';
    await expect(loadTrained({ file, env: {} })).rejects.toMatchObject({ message, where: file });
    await expect(loadTrained({ ...base, overlays: [file] })).rejects.toMatchObject({ message, where: file });
  });

  it('applies the file, then overlays in order, then --set', async () => {
    const folder = newFolder();
    const overlay = join(folder, 'mine.libsonnet');
    writeFileSync(overlay, '{ seed: 5, optimizer+: { learning_rate: 0.5 }, rollout+: { temperature: 0.7 } }');
    const { settings } = await loadTrained({ ...base, overlays: [...base.overlays, overlay], sets: ['seed=6'] });
    expect(settings).toMatchObject({
      seed: 6,
      optimizer: { learning_rate: 0.5 },
      rollout: { temperature: 0.7, generations_per_sample: 8 },
    });
  });

  it('reports that a run which ends within its warm-up never reaches its learning rate, with a schedule and without', async () => {
    const warnings = async (...sets: string[]): Promise<readonly string[]> =>
      (await loadTrained({ ...base, sets: ['algorithm.warmup_steps=20', ...sets] })).warnings.filter((warning) =>
        warning.startsWith('algorithm.warmup_steps: '),
      );
    const said = 'algorithm.warmup_steps: found 20; the run ends during warm-up, after 20 steps';
    expect(await warnings('num_iterations=20')).toEqual([said]);
    expect(await warnings('num_iterations=20', 'optimizer.schedule=cosine')).toEqual([
      `${said}; optimizer.schedule 'cosine' has no effect`,
    ]);
    expect(await warnings('num_iterations=21', 'optimizer.schedule=cosine')).toEqual([]);
    expect(await warnings('num_iterations=10', 'algorithm.inner_epochs=3')).toEqual([]);
  });

  it('warns of a learning rate that moves weights by more than they are', async () => {
    const warnings = async (rate: string): Promise<readonly string[]> =>
      (await loadTrained({ ...base, sets: [`optimizer.learning_rate=${rate}`] })).warnings;
    expect(await warnings('100')).toEqual([expect.stringMatching(/^optimizer\.learning_rate: found 100; /)]);
    expect(await warnings('0.1')).toEqual([]);
  });

  it('reports that a clip range has no effect where an iteration takes one optimizer step', async () => {
    const said = async (...sets: string[]): Promise<boolean> =>
      (await load(...sets)).warnings.some((warning) => warning.startsWith('algorithm.clip_range has no effect'));
    expect(await said()).toBe(false);
    expect(await said('algorithm.clip_range=0.2')).toBe(true);
    expect(await said('algorithm.clip_range=0.2', 'algorithm.minibatches=2')).toBe(false);
    expect(await said('algorithm.clip_range=0.2', 'algorithm.inner_epochs=2')).toBe(false);
  });

  it('reports that packed weights have no effect if nothing is sampled by a CPU in training', async () => {
    const saidOf = async (file: string, sets: readonly string[]): Promise<string> => {
      const { warnings } = await loadTrained({ ...base, file, sets: ['rollout.packed_weights=all', ...sets] });
      return warnings.find((one) => one.includes('packed_weights')) ?? '';
    };
    const said = (...sets: string[]): Promise<string> => saidOf(base.file, sets);
    expect(await said()).toBe('');
    const none = 'rollout.packed_weights has no effect: ';
    expect(await said('policy.engine.provider=webgpu')).toBe(
      `${none}weights are packed only on the CPU, not on webgpu`,
    );
    expect(await saidOf('configs/sft_s.jsonnet', [])).toContain(`${none}supervised training`);
    const elsewhere = ['rollout.engine={"type":"vllm","base_url":"http://a:1"}', 'policy.lora={}'];
    expect(await said('policy.emu3_use_logit_processor=false', ...elsewhere)).toContain(`${none}vllm samples`);
    expect((await load('policy.engine.provider=webgpu')).warnings.join()).not.toContain('packed_weights');
  });

  it('rejects half precision for weights that train', async () => {
    const half = 'policy.engine.dtype=float16';
    await expect(load(half)).rejects.toThrow("found 'float16' without adapters");
    const { settings, warnings } = await load(half, 'policy.lora={}', 'rollout.packed_weights=all');
    expect(resultText(settings, 'policy')).toContain('"policy.engine.dtype":"float16"');
    expect(warnings.join()).toContain('rollout.packed_weights has no effect: weights in float16 cannot be packed');
  });

  it('reports that a coefficient of held-out data has no effect', async () => {
    const folder = newFolder();
    const overlay = join(folder, 'weighed.libsonnet');
    writeFileSync(overlay, '{ data+: { validation: [{ path: s.path, coefficient: 2 } for s in super.validation] } }');
    const { warnings } = await loadTrained({ ...base, overlays: [...base.overlays, overlay] });
    expect(warnings.filter((one) => one.includes('coefficient'))).toHaveLength(1);
    expect(warnings.join()).toContain('data.validation: coefficient has no effect');
    expect((await load()).warnings.join()).not.toContain('coefficient');
  });

  it('freezes the settings all the way down', async () => {
    const { settings } = await load();
    expect(Object.isFrozen(settings.data.train[0])).toBe(true);
    expect(Object.isFrozen(settings.optimizer.betas)).toBe(true);
  });

  it('takes a --set value as JSON, or else as a string', () => {
    expect(parseSet('a.b=1e-5')).toEqual({ path: 'a.b', value: 1e-5 });
    expect(parseSet('a=x=y')).toEqual({ path: 'a', value: 'x=y' });
    expect(parseSet('a.0.c={"d":[null]}')).toEqual({ path: 'a.0.c', value: { d: [null] } });
    expect(() => parseSet('=3')).toThrow("found no '='");
    expect(() => parseSet('a.b.=3')).toThrow(
      "--set a.b.=3: 'a.b.' is not a key; allowed: names with dots between them",
    );
  });

  it('puts tiny runs below runs/tiny unless the environment says where', async () => {
    expect((await load()).settings.base_exp_dir).toBe('runs/tiny');
    const elsewhere = await loadTrained({ ...base, env: { APP__BASE_EXP_DIR: '/elsewhere', APP__DATA_DIR: '/data' } });
    expect(elsewhere.settings.base_exp_dir).toBe('/elsewhere');
    expect(elsewhere.settings.data.train[0].path).toBe('/data/tiny/s/prompts/list/tokenized_datalist.json');
  });

  it('defines the external variables', () => {
    expect(externalVariables('a/b.c.jsonnet', { APP__X: '1', APP__DATA_DIR: '', HOME: '/' })).toEqual({
      APP__RUN_NAME: 'b.c',
      APP__BASE_EXP_DIR: 'runs',
      APP__DATA_DIR: 'data',
      APP__REWARD_FUNCTION_API_BASE: '',
      APP__X: '1',
    });
  });
});

describe('the import closure', () => {
  const folder = newFolder();
  mkdirSync(join(folder, 'lib'));
  writeFileSync(
    join(folder, 'a.jsonnet'),
    `// import 'comment'\n{ s: "import 'text'", b: import 'lib/b.libsonnet', t: importstr "notes.txt" }`,
  );
  writeFileSync(join(folder, 'lib/b.libsonnet'), "(import '../c.libsonnet')");
  writeFileSync(join(folder, 'c.libsonnet'), '{}');
  writeFileSync(join(folder, 'notes.txt'), "import 'd'");

  it('follows imports, relative to each file, and reads texts without following them', () => {
    const names = [...importClosure([join(folder, 'a.jsonnet')]).keys()].map((path) => path.slice(folder.length + 1));
    expect(names).toEqual(['a.jsonnet', 'lib/b.libsonnet', 'c.libsonnet', 'notes.txt']);
  });

  it('changes the import hash, and not the settings hash, when only a comment changes', async () => {
    const file = join(folder, 'run.jsonnet');
    const text = `(import '${process.cwd()}/configs/sft_s__rl_s.jsonnet') + (import '${process.cwd()}/configs/lib/tiny.libsonnet')`;
    writeFileSync(file, text);
    const before = await loadTrained({ file, env: {} });
    writeFileSync(file, `${text} // more`);
    const after = await loadTrained({ file, env: {} });
    expect(after.importHash).not.toBe(before.importHash);
    expect(after.resultHash).toBe(before.resultHash);
  });
});

describe('the settings hash', () => {
  it('ignores fields of operation, and a raised num_iterations', async () => {
    const before = await load();
    const after = await load(
      'run_name=other',
      'base_exp_dir=/elsewhere',
      'reward.endpoint=http://other:1',
      'reward.timeout_s=3',
      'checkpoint.keep_last=9',
      'track.log_episodes_every_n_iterations=1',
      'launch.env={"A":"b"}',
      'policy.engine.provider=webgpu',
      'rollout.chunk_groups=2',
      'num_iterations=81',
    );
    expect(after.resultHash).toBe(before.resultHash);
    expect(diffSettings(before.settings, after.settings)).toEqual([]);
  });

  it.each([
    'seed=1',
    'optimizer.learning_rate=1e-5',
    'algorithm.advantage.scale=none',
    'data.train.0.coefficient=2',
    'policy.model.run=other',
  ])('changes with %s', async (set) => {
    const [before, after] = [await load(), await load(set)];
    expect(after.resultHash).not.toBe(before.resultHash);
    expect(diffSettings(before.settings, after.settings)).toHaveLength(1);
  });

  it('counts num_iterations where the learning rate falls until the last of them', async () => {
    const of = async (...sets: string[]) => {
      const [before, after] = [await load(...sets), await load(...sets, 'num_iterations=81')];
      const changes = diffSettings(before.settings, after.settings).map(({ key }) => key);
      const grows = growable(after.settings);
      expect(before.resultHash === after.resultHash).toBe(grows);
      expect(changes).toEqual(grows ? [] : ['num_iterations']);
      return grows;
    };
    for (const schedule of ['optimizer.schedule=linear', 'optimizer.schedule=cosine']) {
      expect(await of(schedule)).toBe(false);
    }
    expect(await of()).toBe(true);
  });

  it('stays when the data folder moves, and changes with the data set in it', async () => {
    const here = await load();
    const moved = await loadTrained({ ...base, env: { APP__DATA_DIR: '/mnt/data' } });
    expect(moved.resultHash).toBe(here.resultHash);
    const other = await load('data.train.0.path=data/tiny/c/prompts/list/tokenized_datalist.json');
    expect(other.resultHash).not.toBe(here.resultHash);
    // A dataset beside that folder does not move with it.
    const hashes = ['/mnt/data', '/mnt/deeper/data'].map(async (APP__DATA_DIR) => {
      const sets = ['data.train.0.path=/shared/list.json'];
      return (await loadTrained({ ...base, sets, env: { APP__DATA_DIR } })).resultHash;
    });
    expect(await hashes[0]).toBe(await hashes[1]);
  });

  it('stays when a config and the config of its parent are in different folders', async () => {
    const here = await load();
    const deeper = await load('policy.model.config=../sft_s.jsonnet', 'environment.model.config=../tiny_vq.jsonnet');
    expect(deeper.resultHash).toBe(here.resultHash);
    expect(diffSettings(here.settings, deeper.settings)).toEqual([]);
    const other = await load('policy.model={"run":"other","config":"sft_s.jsonnet"}');
    expect(diffSettings(here.settings, other.settings)).toEqual([
      { key: 'policy.model', before: { run: 'sft_s' }, after: { run: 'other' } },
    ]);
  });

  it('changes with the text of a prompt file, and not with its path', async () => {
    const folder = newFolder();
    const [one, two] = ['one.txt', 'two.txt'].map((name) => join(folder, name));
    writeFileSync(one, 'Be strict.\n');
    writeFileSync(two, 'Be strict.');
    const setting = 'reward.prompts.viescore_pq';
    const before = await load(`${setting}=${one}`);
    const digests = textDigests(before.settings);
    expect((await load(`${setting}=${two}`)).resultHash).toBe(before.resultHash);
    expect(before.resultHash).not.toBe((await load()).resultHash);
    writeFileSync(one, 'Be kind.');
    const after = await load(`${setting}=${one}`);
    expect(after.resultHash).not.toBe(before.resultHash);
    expect(diffSettings(before.settings, after.settings, digests)).toMatchObject([
      { key: setting, before: `${one} (text ${digests[setting]?.slice(0, 12)})` },
    ]);
    // For a run recorded without digests, only the path is known.
    expect(diffSettings(before.settings, after.settings)).toEqual([]);
    rmSync(one);
    const gone = await load(`${setting}=${one}`);
    expect(diffSettings(before.settings, gone.settings, digests)).toMatchObject([{ after: `${one} (not readable)` }]);
  });

  it('of another trainer changes with its command, and not with where it runs', async () => {
    const start = (...sets: string[]) =>
      loadEvaluated({ file: 'experiments/foreign/quadratic.jsonnet', env: {}, sets });
    const before = await start();
    const elsewhere = await start('launch.env.HF_HOME="/data"', 'launch.max_restarts=3', 'launch.processes=1');
    expect(elsewhere.resultHash).toBe(before.resultHash);
    const after = await start('launch.command=["python3","other.py"]');
    expect(after.resultHash).not.toBe(before.resultHash);
    expect(diffSettings(before.settings, after.settings)).toEqual([
      {
        key: 'launch.command',
        before: ['python3', 'experiments/foreign/quadratic.py'],
        after: ['python3', 'other.py'],
      },
    ]);
  });
});

describe('the schema', () => {
  /** Every leaf with its path; unions and lists of values are leaves. */
  function* fields(schema: z.ZodType, path: string): Generator<[string, z.ZodType]> {
    const bare = unwrap(schema);
    const options: z.ZodType[] = bare instanceof z.ZodDiscriminatedUnion ? (bare.options as z.ZodType[]) : [bare];
    const isMarked = markOf(schema).effect !== undefined;
    const element = bare instanceof z.ZodArray ? (bare.element as z.ZodType) : null;
    if (isMarked || (element === null && options.every((option) => fieldsOf(option, undefined) === null))) {
      yield [path, schema];
    } else if (element !== null) {
      yield* fields(element, `${path}[]`);
    } else {
      const children = options.flatMap((option) => Object.entries(fieldsOf(option, undefined) ?? {}));
      for (const [key, field] of children) yield* fields(field, `${path}.${key}`);
    }
  }

  it.each(Object.entries(recipes))('of %s marks and describes every field', (name, { schema }) => {
    const all = [...fields(schema, name)];
    expect(all.length).toBeGreaterThan(25);
    const unmarked = all.filter(
      ([, field]) => markOf(field).effect === undefined || markOf(field).description === undefined,
    );
    expect(unmarked.map(([path]) => path)).toEqual([]);
  });
});

describe('the nearest known word', () => {
  it('is none when nothing is close', () => {
    expect(nearest('learning_rte', ['learning_rate', 'eps'])).toBe('learning_rate');
    expect(nearest('foo', ['learning_rate', 'eps'])).toBeNull();
    // A beginning says more than a distance does, unless several words begin with it.
    expect(nearest('min_learning_rate', ['learning_rate', 'min_learning_rate_ratio'])).toBe('min_learning_rate_ratio');
    expect(nearest('save_', ['save_every', 'save_images'])).toBeNull();
    expect(nearest('k4', ['k1', 'k2'])).toBeNull();
  });
});

describe('variables of PyTorch programs', () => {
  it('are accepted, and said to be without effect', async () => {
    const env = { PYTORCH_CUDA_ALLOC_CONF: 'max_split_size_mb:512', NCCL_DEBUG: 'INFO', OWN: '1' };
    const { warnings } = await load(`launch.env=${JSON.stringify({ ...env, CUDA_VISIBLE_DEVICES: '1,2,3' })}`);
    expect(warnings.filter((warning) => warning.startsWith('launch.env'))).toEqual([
      'launch.env: PYTORCH_CUDA_ALLOC_CONF, NCCL_DEBUG has no effect, because PyTorch is not used',
      'launch.env: CUDA_VISIBLE_DEVICES has no effect; use launch.devices and launch.placement',
    ]);
    expect((await load('launch.env={"OWN": "1"}')).warnings.join()).not.toContain('launch.env');
  });
});
