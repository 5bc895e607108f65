import { chmodSync, existsSync, mkdirSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { loadConfig, type LoadedConfig } from '../../../src/config/load.js';
import { chainOf } from '../../../src/launch/chain.js';
import { Preflight, throwObstacles, type CheckOptions } from '../../../src/launch/preflight/preflight.js';
import { exitCodeOf, type Obstacle } from '../../../src/launch/preflight/obstacle.js';
import type { Devices } from '../../../src/launch/machine/devices.js';
import { noView } from '../../../src/launch/live/view.js';
import { Launcher } from '../../../src/launch/launcher.js';
import { saveCheckpoint } from '../../../src/run/checkpoints.js';
import { claimRun } from '../../../src/run/claim/claim.js';
import { claimRequest } from '../../../src/run/claim/claim_request.js';
import { ConfigError, type EditrlError, must, RunError } from '../../../src/core/errors.js';
import { loadEvaluated } from '../../config/evaluated.js';
import { testFolders } from '../../support/folder.js';

const newFolder = testFolders('preflight');
afterEach(() => void vi.unstubAllEnvs());

const overlays = ['configs/lib/tiny.libsonnet'];
const names = ['tiny_vq', 'sft_s', 'sft_s__rl_s'];
/** Stands for a test's own folder where a config is evaluated once for all tests. */
const PLACE = '/the-folder-of-a-test';

function stubPlaces(folder: string): void {
  vi.stubEnv('APP__BASE_EXP_DIR', join(folder, 'runs'));
  vi.stubEnv('APP__DATA_DIR', join(folder, 'data'));
}

/** The chain of three of the quickstart, in folders of its own, with what one run of it sets. */
async function chain(folder: string, ...sets: string[]): Promise<LoadedConfig[]> {
  const env = { ...process.env, APP__BASE_EXP_DIR: `${PLACE}/runs`, APP__DATA_DIR: `${PLACE}/data` };
  const files = names.map((name) => `configs/${name}.jsonnet`);
  const runs = await Promise.all(
    files.map((file, i) => loadEvaluated({ file, overlays, sets: i === 2 ? sets : [], env })),
  );
  return JSON.parse(JSON.stringify(runs).replaceAll(PLACE, folder)) as LoadedConfig[];
}

/** The same chain as a command finds it, by evaluating what each run names. */
async function foundChain(folder: string, ...sets: string[]): Promise<LoadedConfig[]> {
  stubPlaces(folder);
  const config = await loadConfig({ file: 'configs/sft_s__rl_s.jsonnet', overlays, sets });
  return (await chainOf(config)).map((link) => link.config);
}

/** A run of another trainer's program. */
async function foreign(folder: string, command: string, env = ''): Promise<LoadedConfig> {
  const file = join(folder, 'other.jsonnet');
  writeFileSync(
    file,
    `{ run_name: 'other', task: 'external', num_iterations: 1, launch: { command: ['${command}'], ${env} } }`,
  );
  return loadConfig({ file, sets: [`base_exp_dir=${join(folder, 'runs')}`] });
}

/** Leaves the folder of a run that has a checkpoint. */
function begun(config: LoadedConfig): void {
  const handle = claimRun(claimRequest(config, { command: [], versions: {} }));
  saveCheckpoint(handle.paths, 1, { 'trainer.json': '1' });
  handle.release();
}

async function obstaclesOf(
  runs: readonly LoadedConfig[],
  options: CheckOptions = {},
  preflight = new Preflight(),
): Promise<readonly Obstacle[]> {
  return (await preflight.check(runs, options)).obstacles;
}

function texts(found: readonly Obstacle[]): string[] {
  return found.map(({ run, error }) => `${run}: ${error.toText()}`);
}

describe('what is in the way of runs', () => {
  it('is a device that is missing, as a run finds it', async () => {
    const gpu = { index: 0, uuid: 'GPU-a', name: 'NVIDIA H200', memoryBytes: 2 ** 37, usedBytes: 0 };
    const found = async (sets: readonly string[], devices: Partial<Devices> = {}): Promise<string> => {
      const runs = await chain(newFolder(), ...sets);
      const problems = await obstaclesOf(runs, { devices: () => ({ gpus: [], cpus: 2, ...devices }) });
      return texts(problems).join('\n');
    };
    expect(await found(['launch.devices=[3]'])).toContain('launch.devices: there is no GPU 3; this machine has no GPU');
    expect(await found(['launch.devices=[3]'], { gpus: [gpu] })).toContain('usable here: 0 (NVIDIA H200)');
    expect(await found(['policy.engine.provider=cuda'])).toContain(
      "engine.provider is 'cuda', but onnxruntime-node lacks",
    );
    expect(await found(['launch.processes=3'])).toContain('but this machine has 2 CPU cores');
    expect(await found(['policy.engine.provider=auto'], { problem: 'nvidia-smi is not on PATH' })).toContain(
      'this machine has NVIDIA GPUs, but nvidia-smi is not on PATH',
    );
    for (const sets of [[], ['policy.engine.provider=auto', 'launch.devices=[]']]) {
      expect(await found(sets, { problem: 'nvidia-smi is not on PATH' })).not.toContain('nvidia-smi');
    }
    const other = await foreign(newFolder(), 'true');
    expect(
      texts(await obstaclesOf([other], { devices: () => ({ gpus: [], cpus: 2, problem: 'it is broken' }) })),
    ).toEqual([expect.stringContaining('but it is broken')]);
  });

  it('is nothing if all that they start from will be made', async () => {
    const folder = newFolder();
    const runs = await foundChain(folder);
    expect(runs.map(({ settings }) => settings.run_name)).toEqual(names);
    expect(runs.map(({ settings }) => settings)).toEqual((await chain(folder)).map(({ settings }) => settings));
    expect(await obstaclesOf(runs)).toEqual([]);
    expect(readdirSync(folder)).toEqual([]);
  });

  it('is data that is missing, each list once, and samples that it lists', async () => {
    const folder = newFolder();
    const list = join(folder, 'list.json');
    writeFileSync(list, JSON.stringify({ path_list: ['gone.npz'] }));
    const nowhere = join(folder, 'nowhere.json');
    const runs = await chain(folder, `data.train=[{"path":"${nowhere}"},{"path":"${nowhere}"},{"path":"${list}"}]`);
    const found = texts(await obstaclesOf(runs));
    expect(found).toHaveLength(2);
    expect(found[0]).toMatch(`sft_s__rl_s: ${nowhere}: there is no list of samples here`);
    expect(found[1]).toMatch(/gone\.npz: a sample that .*list\.json lists does not exist/);
  });

  it('is too little space for one chain where there was enough for another one in the same folder', async () => {
    const runs = await chain(newFolder());
    const found = async (of: readonly LoadedConfig[], free: number, preflight = new Preflight()) =>
      texts(await obstaclesOf(of, { freeSpace: () => free }, preflight)).filter((text) => text.includes(' free'));
    const first = runs.slice(0, 1);
    const sizes = Array.from({ length: 20 }, (_, i) => 2 ** (20 + i));
    const results = await Promise.all(sizes.map((bytes) => found(first, bytes)));
    const free = must(sizes[results.findIndex((texts) => texts.length === 0)], 'room for one run');
    const alone = await found(runs, free);
    expect(alone).toHaveLength(1);
    const preflight = new Preflight();
    expect(await found(first, free, preflight)).toEqual([]);
    expect(await found(runs, free, preflight)).toEqual(alone);
  });

  it('is reported once, though several read the same file', async () => {
    const folder = newFolder();
    writeFileSync(join(folder, 'tokenizer.json'), '{"model": {"vocab": {"a": 0}}}');
    writeFileSync(join(folder, 'chat_template.jinja'), '{{ messages[0].content }}');
    const sets = [`policy.model=${folder}`, 'policy.init=null', 'policy.tokenizer=null'];
    const run = await loadConfig({
      file: 'configs/text_plain.jsonnet',
      overlays: ['configs/lib/smollm2.libsonnet'],
      sets,
    });
    const found = texts(await obstaclesOf([run])).filter((text) => text.includes(folder));
    expect(found).toEqual([expect.stringContaining(`${folder}: there is no config.json`)]);
  });

  it('is a program that is missing, or is none', async () => {
    const folder = newFolder();
    expect(texts(await obstaclesOf([await foreign(folder, 'no-such-trainer')]))[0]).toMatch(
      "other: launch.command: no program 'no-such-trainer' on PATH",
    );
    const script = join(folder, 'train.sh');
    writeFileSync(script, '#!/bin/sh\n');
    expect(texts(await obstaclesOf([await foreign(folder, script)]))[0]).toMatch(`no program '${script}'`);
    chmodSync(script, 0o755);
    expect(await obstaclesOf([await foreign(folder, script)])).toEqual([]);
    expect(await obstaclesOf([await foreign(folder, 'train.sh', `env: { PATH: '${folder}' }`)])).toEqual([]);
  });

  it('is a training server to be started whose program is missing', async () => {
    const folder = newFolder();
    const found = async (serve: object): Promise<string[]> => {
      const trainer = JSON.stringify({ type: 'tinker', base_model: 'base', serve });
      const sets = ['policy.model=null', 'policy.init=null', `policy.tokenizer=${folder}`, `policy.trainer=${trainer}`];
      const run = await loadConfig({
        file: 'configs/text_plain.jsonnet',
        overlays: ['configs/lib/text_tiny.libsonnet'],
        sets,
      });
      return texts(await obstaclesOf([run])).filter((text) => text.includes('policy.trainer.serve'));
    };
    expect((await found({ command: ['no-such-server', '--fast'] }))[0]).toMatch(
      /policy\.trainer\.serve\.command: no program 'no-such-server' on PATH\n {2}scripts\/serve_skyrl needs bash, and uv/,
    );
    expect((await found({ python: folder }))[0]).toContain(
      `policy.trainer.serve.python: no program '${folder}/bin/uv'`,
    );
    mkdirSync(join(folder, 'bin'));
    writeFileSync(join(folder, 'bin/uv'), '#!/bin/sh\n', { mode: 0o755 });
    expect(await found({ python: folder })).toEqual([]);
  });

  it('is a folder that no run can be written to', async () => {
    const folder = newFolder();
    writeFileSync(join(folder, 'file'), '');
    const runs = await chain(join(folder, 'file'));
    expect(texts(await obstaclesOf(runs))).toEqual([
      expect.stringMatching(/^tiny_vq: .*\/file: is a file, not a folder/),
    ]);
  });

  it('is a run that would be looked for if it is not made', async () => {
    const folder = newFolder();
    const runs = await foundChain(folder, `base_exp_dir=${join(folder, 'elsewhere')}`);
    // --set base_exp_dir reaches them all.
    expect(await obstaclesOf(runs)).toEqual([]);
    const [first, ...others] = await chain(folder);
    const moved = { ...first, settings: { ...first.settings, base_exp_dir: folder } };
    expect(texts(await obstaclesOf([moved, ...others]))).toEqual([
      expect.stringMatching(
        /^sft_s: base_exp_dir: sft_s expects the run tiny_vq in .*runs, but its config puts it into/,
      ),
      expect.stringMatching(/sft_s__rl_s expects the run tiny_vq/),
    ]);
  });

  it('is a folder of a run with other settings', async () => {
    const folder = newFolder();
    const [, start] = await chain(folder);
    begun(start);
    const runs = await chain(folder);
    expect(await obstaclesOf(runs)).toEqual([]);
    const changed = runs.map((run) =>
      run.settings.run_name === 'sft_s'
        ? { ...run, resultHash: 'another', settings: { ...run.settings, seed: 7 } }
        : run,
    );
    expect(texts(await obstaclesOf(changed))).toEqual([
      expect.stringMatching(/^sft_s: run 'sft_s' was started with other/),
    ]);
  });

  it('is not looked for where a run is finished', async () => {
    const folder = newFolder();
    const runs = await chain(folder, `data.train=[{"path":"${join(folder, 'nowhere.json')}"}]`);
    const handle = claimRun(claimRequest(runs[2], { command: [], versions: {} }));
    handle.setState({ state: 'finished', iteration: runs[2].settings.num_iterations });
    handle.release();
    expect(await obstaclesOf(runs)).toEqual([]);
  });

  it('is reported for each config that it prevents, and checked once for all of them', async () => {
    const folder = newFolder();
    const nowhere = join(folder, 'nowhere.json');
    const [, , first] = await chain(folder, `data.train=[{"path":"${nowhere}"}]`);
    const preflight = new Preflight();
    const found = texts(await obstaclesOf([first], {}, preflight));
    expect(found).toEqual([expect.stringMatching(/^sft_s__rl_s: .*nowhere\.json: there is no list of samples here/)]);
    writeFileSync(nowhere, '{}');
    const second = { ...first, settings: { ...first.settings, run_name: 'another' } };
    const again = texts(await obstaclesOf([second], {}, preflight));
    expect(again).toEqual(found.map((text) => text.replace('sft_s__rl_s:', 'another:')));
    expect(texts(await obstaclesOf([second]))[0]).not.toContain('there is no list of samples');
  });

  it('is memory that there is not, for certain; what may be too much is a warning', async () => {
    const folder = newFolder();
    const devices = (): { gpus: []; cpus: number } => ({ gpus: [], cpus: 2 });
    // Nor would so many checkpoints fit on any disk.
    const freeSpace = (): number => Infinity;
    const sized = async (width: number): Promise<LoadedConfig[]> => [
      await loadEvaluated({
        file: 'configs/sft_s.jsonnet',
        overlays,
        sets: [`policy.init.hidden_size=${width}`, `base_exp_dir=${folder}`],
      }),
    ];
    const GIB = 2 ** 30;
    const checked = async (runs: readonly LoadedConfig[], free = 64 * GIB, total = 64 * GIB) => {
      const options = { devices, freeSpace, machine: { free, total }, claimed: [] };
      const { obstacles, warnings } = await new Preflight().check(runs, options);
      return [texts(obstacles), warnings()];
    };
    const small = await sized(64);
    expect(await checked(small)).toEqual([[], []]);
    const large = await sized(2 ** 20);
    expect(await checked(large)).toEqual([
      [expect.stringMatching(/^sft_s: sft_s: needs about [\d.]+ GiB of memory, and this machine has 64\.0 GiB\n/)],
      [],
    ]);
    expect(await checked(small, 1)).toEqual([[], [expect.stringMatching(/^sft_s is estimated to need .*: lower /)]]);
    const both = [...small, ...small.map((run) => ({ ...run, settings: { ...run.settings, run_name: 'twin' } }))];
    expect(await checked(both, 1)).toEqual([
      [],
      [expect.stringMatching(/^sft_s and 1 more are each estimated to need /)],
    ]);
    const elsewhere = large.map((run) => ({
      ...run,
      settings: { ...run.settings, launch: { ...run.settings.launch, backend: 'slurm' as const } },
    }));
    expect(await checked(elsewhere)).toEqual([[], []]);
    await expect(
      new Launcher({ view: noView, command: [], stop: new AbortController().signal }).run(large[0]),
    ).rejects.toThrow('of memory, and this machine has');
    expect(readdirSync(folder)).toEqual([]);
  });

  it('is all said in one message, and keeps everything from starting', async () => {
    const folder = newFolder();
    mkdirSync(join(folder, 'data'));
    const sets = [`data.train=[{"path":"${folder}/nowhere.json"}]`, `policy.model=${folder}/gone`];
    stubPlaces(folder);
    const [last] = (await chain(folder, ...sets)).slice(-1);
    const launcher = new Launcher({ view: noView, command: [], stop: new AbortController().signal });
    await expect(launcher.run(last)).rejects.toThrow(
      /2 problems found; nothing was started\n.*no list of samples here\n.*\n.*no such model folder/,
    );
    await launcher.close();
    expect(existsSync(join(folder, 'runs'))).toBe(false);
    expect(() => throwObstacles([])).not.toThrow();
  });

  it('exits with 2 only if a config must change, whatever the number of problems', () => {
    const [missing, wrong] = [new RunError('no program'), new ConfigError('no key')].map((error) => ({
      run: 'mine',
      error,
    }));
    const codeOf = (...obstacles: readonly Obstacle[]): number => {
      try {
        throwObstacles(obstacles);
      } catch (error) {
        expect((error as EditrlError).exitCode).toBe(exitCodeOf(obstacles));
      }
      return exitCodeOf(obstacles);
    };
    expect([codeOf(), codeOf(missing), codeOf(missing, missing)]).toEqual([0, 1, 1]);
    expect([codeOf(wrong), codeOf(missing, wrong)]).toEqual([2, 2]);
  });
});
