import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { loadConfig, type LoadedConfig } from '../../../src/config/load.js';
import { dependencies } from '../../../src/config/models.js';
import { saveCheckpoint } from '../../../src/run/checkpoints.js';
import { claimRun, type RunHandle } from '../../../src/run/claim/claim.js';
import { changedFrom, claimRequest } from '../../../src/run/claim/claim_request.js';
import { RunPaths } from '../../../src/run/paths.js';
import { recordedConfig } from '../../../src/run/recorded_config.js';
import type { RunRecord } from '../../../src/run/record.js';

const base = mkdtempSync(join(tmpdir(), 'editrl-claim-request-'));
afterAll(() => {
  rmSync(base, { recursive: true, force: true });
});

/** One iteration is learned, and the run is free. */
function learn(handle: RunHandle): void {
  saveCheckpoint(handle.paths, 1, { 'trainer.json': '1' });
  handle.release();
}

it('lets operation fields and more iterations through, and rejects what decides the result', async () => {
  const claim = async (...sets: string[]): Promise<ReturnType<typeof claimRun>> => {
    const config = await loadConfig({
      file: 'configs/sft_s__rl_s.jsonnet',
      overlays: ['configs/lib/tiny.libsonnet'],
      sets: [`base_exp_dir=${JSON.stringify(base)}`, ...sets],
    });
    return claimRun(claimRequest(config, { command: ['editrl'], versions: {} }));
  };
  const first = await claim('num_iterations=7');
  learn(first);
  expect(first).toMatchObject({ kind: 'new', paths: { runName: 'sft_s__rl_s' } });
  const second = await claim('num_iterations=9', 'checkpoint.save_every_n_iterations=3');
  second.release();
  expect(second).toMatchObject({ kind: 'resumed', notes: ['num_iterations: 7 -> 9'] });
  expect(second.record.hash).toBe(first.record.hash);
  await expect(claim('num_iterations=9', 'algorithm.kl_coeff=0.5')).rejects.toThrow(
    /\n {4}algorithm\.kl_coeff: .* -> 0\.5/,
  );
  await expect(claim('num_iterations=8')).rejects.toThrow('num_iterations: 9 -> 8 (must not be lowered)');
});

it('lets a run continue to more iterations than it was started with, unless its learning rate falls until the last', async () => {
  const claim = async (name: string, ...sets: string[]): Promise<ReturnType<typeof claimRun>> => {
    const config = await loadConfig({
      file: 'configs/sft_s__rl_s.jsonnet',
      overlays: ['configs/lib/tiny.libsonnet'],
      sets: [`base_exp_dir=${JSON.stringify(base)}`, `run_name=${name}`, 'optimizer.schedule=cosine', ...sets],
    });
    const handle = claimRun(claimRequest(config, { command: ['editrl'], versions: {} }));
    learn(handle);
    return handle;
  };
  await claim('falls', 'num_iterations=7');
  expect((await claim('falls', 'num_iterations=7')).kind).toBe('resumed');
  await expect(claim('falls', 'num_iterations=9')).rejects.toThrow(
    'num_iterations: 7 -> 9 (the learning rate schedule depends on it; ',
  );
});

it('lets a run that has learned nothing become another one, and reports it to a plan', async () => {
  const load = async (clip: number): Promise<LoadedConfig> =>
    loadConfig({
      file: 'configs/sft_s__rl_s.jsonnet',
      overlays: ['configs/lib/tiny.libsonnet'],
      sets: [`base_exp_dir=${JSON.stringify(base)}`, 'run_name=mistyped', `algorithm.clip_range=${clip}`],
    });
  const [typed, meant] = [await load(2), await load(0.2)];
  const context = { command: ['editrl'], versions: {} };
  claimRun(claimRequest(typed, context)).release();
  const before = claimRun(claimRequest(meant, context));
  expect(before.notes).toEqual(['changed before the first checkpoint: algorithm.clip_range: 2 -> 0.2']);
  expect(before.record.hash).toBe(meant.resultHash);
  expect(changedFrom(before.record, typed)).toEqual([]);
  learn(before);
  expect(changedFrom(before.record, typed)).toMatchObject([{ key: 'algorithm.clip_range' }]);
  expect(() => claimRun(claimRequest(typed, context))).toThrow('algorithm.clip_range: 0.2 -> 2');
});

describe('a run without its config file', () => {
  const overlays = ['configs/lib/tiny.libsonnet'];
  const make = async (name: string): Promise<{ paths: RunPaths; record: RunRecord; config: LoadedConfig }> => {
    const sets = [`base_exp_dir=${JSON.stringify(base)}`, `run_name=${name}`];
    const config = await loadConfig({ file: 'configs/sft_s__rl_s.jsonnet', overlays, sets });
    const handle = claimRun(claimRequest(config, { command: ['editrl'], versions: {} }));
    learn(handle);
    return { paths: handle.paths, record: handle.record, config };
  };

  it('is loaded from its record as it was from the file', async () => {
    const { paths, record, config } = await make('same');
    expect(recordedConfig(paths, record)).toEqual({
      ...config,
      warnings: [],
      file: resolve('configs/sft_s__rl_s.jsonnet'),
      overlays: [resolve(overlays[0])],
      allowChanges: [],
      trust: false,
      fromRecord: true,
    });
  });

  it('is found in its folder, under the name that a fork gives it', async () => {
    const { record } = await make('moved');
    const moved = recordedConfig(new RunPaths('/elsewhere', 'moved'), record, { runName: 'fork' });
    expect(moved.settings).toMatchObject({ base_exp_dir: '/elsewhere', run_name: 'fork' });
    expect(moved.resultHash).toBe(record.hash);
  });

  it('takes changes that the schema knows, and reports those that it does not', async () => {
    const { paths, record } = await make('changed');
    const sets = ['num_iterations=99', 'reward.endpoint=http://judge:8000', 'launch.max_restarts=2'];
    expect(recordedConfig(paths, record, { sets }).settings).toMatchObject({
      num_iterations: 99,
      reward: { endpoint: 'http://judge:8000/v1' },
      launch: { max_restarts: 2 },
    });
    const bad =
      (...texts: string[]) =>
      () =>
        recordedConfig(paths, record, { sets: texts });
    expect(bad('num_iterations=-1', 'lunch.processes=2')).toThrow(/2 problems\n.*\(--set\) (.|\n)*launch/);
    expect(bad('run_name=other')).toThrow('run_name cannot change when a run continues');
    expect(bad('nothing')).toThrow("found no '='");
  });

  it('allows only settings that there are and that decide the result', async () => {
    const { paths, record } = await make('allowed');
    const claim =
      (allowChanges: string[], ...sets: string[]) =>
      () =>
        claimRun(claimRequest(recordedConfig(paths, record, { sets, allowChanges }), { command: [], versions: {} }));
    const kl = 'algorithm.kl_coeff=0.5';
    expect(claim([], kl)).toThrow('algorithm.kl_coeff: 0.0003 -> 0.5');
    expect(claim(['algorithm.kl_coef'], kl)).toThrow(
      "unknown setting 'algorithm.kl_coef'; did you mean algorithm.kl_coeff?",
    );
    expect(claim(['optimizer'], kl)).toThrow("unknown setting 'optimizer'; did you mean optimizer.");
    expect(claim(['reward.endpoint'], kl)).toThrow('reward.endpoint does not affect');
    const handle = claim(['algorithm.kl_coeff'], kl)();
    handle.release();
    expect(handle.record).toMatchObject({ settings: { algorithm: { kl_coeff: 0.5 } } });
    expect(handle.record.hash).not.toBe(record.hash);
  });

  it('is rejected when a text that it names or a run that it starts from was changed, unless that is allowed', async () => {
    const prompt = join(base, 'rubric.txt');
    writeFileSync(prompt, 'Be strict.');
    const { paths, record } = await make('started');
    const tokenizer = new RunPaths(base, 'tiny_vq');
    mkdirSync(tokenizer.dir, { recursive: true });
    const parent = (hash: string): void =>
      writeFileSync(tokenizer.record, JSON.stringify({ ...record, run_name: 'tiny_vq', hash }));
    parent('first');
    const set = `reward.prompts.viescore_pq=${prompt}`;
    const claim = (...allowChanges: string[]): ReturnType<typeof claimRun> => {
      const from = recordedConfig(paths, record, { sets: [set], runName: 'judged', allowChanges });
      const parents = dependencies(from.settings).map((reference) => ({ ...reference }));
      const handle = claimRun(claimRequest(from, { command: [], versions: {}, parents }));
      handle.release();
      return handle;
    };
    const before = claim();
    expect(before.record.texts?.['reward.prompts.viescore_pq']).toMatch(/^[0-9a-f]{64}$/);
    saveCheckpoint(before.paths, 1, { 'trainer.json': '1' });
    expect(claim().kind).toBe('resumed');

    writeFileSync(prompt, 'Be kind.');
    expect(() => claim()).toThrow(
      /reward\.prompts\.viescore_pq: ".*rubric\.txt \(text \w{12}\)" -> ".*\(text \w{12}\)"/,
    );
    expect(claim('reward.prompts.viescore_pq').kind).toBe('resumed');
    expect(claim().kind).toBe('resumed');

    parent('second');
    const retrained = 'parents.tiny_vq: "settings first" -> "settings second" (the parent run was retrained';
    expect(() => claim()).toThrow(retrained);
    expect(() => claim('parents.sft')).toThrow("unknown setting 'parents.sft'; did you mean parents.sft_s?");
    const judged = recordedConfig(new RunPaths(base, 'judged'), before.record);
    expect(changedFrom({ ...before.record, hash: judged.resultHash }, judged)).toMatchObject([
      { key: 'parents.tiny_vq' },
    ]);
    expect(changedFrom({ ...record, hash: judged.resultHash }, judged)).toEqual([]);
    expect(claim('parents.tiny_vq').kind).toBe('resumed');
    expect(claim().kind).toBe('resumed');
  });

  it('reports what of its settings another version does not know', async () => {
    const { paths, record } = await make('older');
    const settings = { ...record.settings, seed: undefined, old_key: 1 };
    expect(() => recordedConfig(paths, { ...record, settings })).toThrow(
      /does not know the recorded settings of the run:\n {4}old_key: unknown key/,
    );
    const earlier = { ...record, settings: { ...record.settings, seed: undefined } };
    expect(recordedConfig(paths, earlier).settings.seed).toBe(42);
  });
});
