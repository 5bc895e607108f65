import fs, { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
import { tmpdir } from 'node:os';
import { delimiter, join, resolve } from 'node:path';
import { afterAll, beforeEach, describe, expect, it, onTestFinished, vi } from 'vitest';
import { main } from '../../src/cli/main.js';
import { loadExperiment } from '../../src/config/experiment/load.js';
import { finishedRun } from '../run/report/recorded_runs.js';
import { planExperiment, type ExperimentPlan } from '../../src/launch/plan.js';

const folder = mkdtempSync(join(tmpdir(), 'editrl-plan-'));
const written = { out: '', error: '' };

beforeEach(() => {
  written.out = '';
  written.error = '';
  vi.spyOn(process.stdout, 'write').mockImplementation((text) => ((written.out += String(text)), true));
  vi.spyOn(process.stderr, 'write').mockImplementation((text) => ((written.error += String(text)), true));
  vi.stubEnv('APP__BASE_EXP_DIR', join(folder, 'runs'));
});
afterAll(() => {
  vi.restoreAllMocks();
  vi.unstubAllEnvs();
  rmSync(folder, { recursive: true });
});

async function plan(...args: string[]): Promise<ExperimentPlan> {
  written.out = '';
  const code = await main(['plan', ...args, '--json']);
  const found = JSON.parse(written.out) as ExperimentPlan;
  expect(code).toBe(found.obstacles.length > 0 ? 1 : 0);
  return found;
}

describe('editrl plan', () => {
  it('lists cells and the runs that they start from, with what each needs', async () => {
    const { experiment, cells, parents } = await plan('experiments/reward_ablation.jsonnet');
    expect(experiment).toBe('reward_ablation');
    expect([cells.length, parents.length]).toEqual([12, 6]);
    const cell = cells.find(({ run_name }) => run_name === 'reward_ablation__kl-0__reward-ground__seed-2');
    expect(cell).toMatchObject({
      axes: { kl: '0', reward: 'ground', seed: '2' },
      state: 'new',
      devices: 1,
      parents: ['tiny_vq__seed-2', 'sft_s__seed-2'],
      differs: { 'algorithm.kl_coeff': 0, 'reward.mode': 'ground_score' },
    });
    // The architecture is that of the start. GRPO keeps a frozen copy, but answers of a group share their prompt.
    const start = parents.find(({ run_name }) => run_name === 'sft_s__seed-2');
    for (const one of [cell, start]) expect(one?.memory_bytes).toBeGreaterThan(2 ** 28);
  });

  it('reports what a sweep would still train of a run that finished with fewer iterations', async () => {
    vi.stubEnv('APP__BASE_EXP_DIR', join(folder, 'extended'));
    const config = ['configs/sft_s__rl_s.jsonnet', '--with', 'configs/lib/tiny.libsonnet'];
    const { cells } = await loadExperiment({ file: config[0], overlays: [config[2]], sets: ['num_iterations=40'] });
    finishedRun(cells[0].config, 4);
    const cell = async (iterations: number) => {
      written.out = '';
      return (await plan(...config, '--set', `num_iterations=${iterations}`)).cells[0];
    };
    expect(await cell(40)).toMatchObject({ state: 'finished', seconds_left: 0, judge_questions: { left: 0 } });
    // An iteration took a second; evaluations at 80 and 120.
    expect(await cell(120)).toMatchObject({
      state: 'extended',
      seconds_left: 80,
      judge_questions: { left: 80 * 512 + 2 * 1024 },
    });
    written.out = '';
    expect(await main(['plan', ...config, '--set', 'num_iterations=120'])).toBe(0);
    expect(written.out).toContain('1 run extended: finished with fewer iterations than configured');
  });

  it('takes parts of names, and patterns, as a sweep does', async () => {
    const file = join(folder, 'only.jsonnet');
    writeFileSync(
      file,
      JSON.stringify({
        name: 'only',
        base: { task: 'external', num_iterations: 3, launch: { command: ['true'] } },
        axes: { kl: { '0': {}, '1': {} }, seed: { '1': { seed: 1 }, '2': { seed: 2 } } },
      }),
    );
    const chosen = async (only: string): Promise<string[]> => {
      written.out = '';
      return (await plan(file, '--only', only)).cells.map(({ run_name }) => run_name);
    };
    expect(await chosen('kl-0')).toEqual(['only__kl-0__seed-1', 'only__kl-0__seed-2']);
    expect(await chosen('*kl-?__seed-2')).toEqual(['only__kl-0__seed-2', 'only__kl-1__seed-2']);
    expect(await main(['plan', file, '--only', 'seed-3'])).toBe(2);
    expect(written.error).toContain('--only seed-3: no cell of only has such a name');
  });

  it('gives each seed its own folder of data, because its tokenizer writes its own codes', async () => {
    const { cells } = await plan('experiments/earl_table.jsonnet');
    const folders = new Set(cells.map(({ axes, differs }) => `${axes['seed']} ${String(differs['data.tiny.folder'])}`));
    expect([...folders].sort()).toEqual(['1 tiny_seed_1', '2 tiny_seed_2', '3 tiny_seed_3']);
  });

  it('reports which runs take GPUs and which the CPU, if there are GPUs', async () => {
    const programs = join(folder, 'programs');
    mkdirSync(programs);
    const answer = '#!/bin/sh\necho "0, GPU-a, NVIDIA H200, 143771, 0"\necho "1, GPU-b, NVIDIA H200, 143771, 0"\n';
    writeFileSync(join(programs, 'nvidia-smi'), answer, { mode: 0o755 });
    vi.stubEnv('PATH', `${programs}${delimiter}${process.env['PATH'] ?? ''}`);
    const { existsSync } = fs;
    fs.existsSync = (path) => path === '/dev/nvidia0' || existsSync(path);
    syncBuiltinESMExports();
    onTestFinished(() => {
      fs.existsSync = existsSync;
      syncBuiltinESMExports();
    });
    const file = join(folder, 'providers.jsonnet');
    writeFileSync(
      file,
      `local on(provider) = { policy+: { engine+: { provider: provider } }, environment+: { engine+: { provider: provider } } };
      {
        name: 'providers',
        base: (import '${resolve('configs/sft_s__rl_s.jsonnet')}') + (import '${resolve('configs/lib/tiny.libsonnet')}')
          + { launch+: { processes: 'auto' } },
        axes: { on: { cpu: on('cpu'), cuda: on('cuda') } },
      }`,
    );
    const { cells } = await plan(file);
    const found = cells.map(({ axes, device, devices }) => [axes['on'], device, devices]);
    expect(found).toEqual([
      ['cpu', 'cpu', 1],
      ['cuda', 'gpu', 2],
    ]);
    written.out = '';
    expect(await main(['plan', file])).toBe(1);
    expect(written.out).toMatch(/^on-cpu +new +1 CPU /m);
    expect(written.out).toMatch(/^on-cuda +new +2 GPUs /m);
  });

  it('explains how many runs a sweep starts at once where memory is for fewer than the cores', async () => {
    const file = join(folder, 'tight.jsonnet');
    const base = (changes: object) =>
      `(import '${resolve('configs/text_start.jsonnet')}') + (import '${resolve('configs/lib/text_tiny.libsonnet')}') + ${JSON.stringify(changes)}`;
    const axes = { seed: Object.fromEntries(['1', '2', '3'].map((seed) => [seed, { seed: Number(seed) }])) };
    writeFileSync(file, `{ name: 'tight', base: ${base({})}, axes: ${JSON.stringify(axes)} }`);
    const { cells, at_once } = await plan(file);
    expect(at_once).toBeNull();
    const each = cells[0].memory_bytes!;
    vi.spyOn(process, 'constrainedMemory').mockReturnValue(1.5 * each);
    const experiment = await loadExperiment({ file });
    expect(await planExperiment(experiment, { gpus: [], cpus: 16 })).toMatchObject({
      at_once: { most: 1, run_bytes: each },
    });
    expect(
      (await planExperiment(experiment, { gpus: [], cpus: 16 }, { free: 2 * each, total: 4 * each })).at_once,
    ).toMatchObject({
      most: 2,
    });
    // A config alone trains its runs one after another; one cell of an experiment may have several parents.
    const [first, ...parents] = experiment.cells;
    const one = { ...experiment, cells: [{ ...first, parents: parents.map(({ run_name }) => run_name) }], parents };
    expect((await planExperiment(one, { gpus: [], cpus: 16 })).at_once).toMatchObject({ most: 1 });
    const alone = { ...one, cells: [{ ...one.cells[0], axes: {} }] };
    expect((await planExperiment(alone, { gpus: [], cpus: 16 })).at_once).toBeNull();
  });

  it('knows the size of runs on the CPU that start from a run on GPUs', async () => {
    const file = join(folder, 'across.jsonnet');
    const cpu = join(folder, 'cpu.libsonnet');
    writeFileSync(cpu, "{ policy+: { engine+: { provider: 'cpu' } } }");
    writeFileSync(
      file,
      `{
        name: 'across',
        base: import '${resolve('configs/sft_s__rl_s.jsonnet')}',
        with: ['${resolve('configs/lib/tiny.libsonnet')}', '${cpu}'],
        axes: { seed: { '1': { seed: 1 }, '2': { seed: 2 } } },
      }`,
    );
    const { cells, parents, ...rest } = await loadExperiment({ file });
    const started = parents.map((parent) => {
      const { policy } = parent.config.settings as unknown as { policy?: { engine: object } };
      const onGpu = policy && { policy: { ...policy, engine: { ...policy.engine, provider: 'cuda' } } };
      const settings = { ...parent.config.settings, ...onGpu };
      return { ...parent, config: { ...parent.config, settings } };
    });
    const gpus = [{ index: 0, uuid: 'GPU-0', name: 'one', memoryBytes: null, usedBytes: null }];
    const found = await planExperiment(
      { ...rest, cells, parents: started },
      { gpus, cpus: 16 },
      { free: 2 ** 20, total: 2 ** 40 },
    );
    expect(new Set(found.parents.map(({ device }) => device))).toContain('gpu');
    expect(found.at_once).toMatchObject({ most: 1 });
  });
});
