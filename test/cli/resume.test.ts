import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, expect, it, vi } from 'vitest';
import { main } from '../../src/cli/main.js';
import { loadConfig } from '../../src/config/load.js';
import { saveCheckpoint } from '../../src/run/checkpoints.js';
import { claimRun } from '../../src/run/claim/claim.js';
import { resultHash } from '../../src/config/hash.js';
import { must } from '../../src/core/errors.js';
import { forkRun } from '../../src/run/claim/fork.js';
import { RunPaths } from '../../src/run/paths.js';
import { readRecord } from '../../src/run/record.js';
import { recordedSettings } from '../../src/run/recorded_config.js';
import { readRun } from '../../src/run/report/read.js';
import { formatReport } from '../../src/run/report/text.js';
import { claimRequest } from '../../src/run/claim/claim_request.js';
import { capture } from './run_directory.js';

const base = mkdtempSync(join(tmpdir(), 'editrl-resume-'));
let written: { out: string; error: string };

/** An interrupted run with checkpoints of iterations 2 and 4; nothing here trains. */
beforeAll(async () => {
  const config = await loadConfig({
    file: 'configs/tiny_vq.jsonnet',
    sets: [`base_exp_dir=${JSON.stringify(base)}`],
  });
  const handle = claimRun(claimRequest(config, { command: ['run'], versions: { editrl: '0.1.0' } }));
  for (const iteration of [2, 4]) saveCheckpoint(handle.paths, iteration, { 'trainer.json': '{}' });
  handle.setState({ state: 'interrupted', iteration: 4 });
  handle.release();
});
afterAll(() => {
  rmSync(base, { recursive: true, force: true });
});
beforeEach(() => {
  written = capture();
});
afterEach(() => {
  vi.restoreAllMocks();
});

it.each([
  [['fork', 'tiny_vq@2'], 2, '--as'],
  [['fork', 'tiny_vq@1.5', '--as', 'other'], 2, "found '1.5'; allowed: the iteration of a checkpoint"],
  [['fork', 'tiny_vq@3', '--as', 'other'], 1, 'no checkpoint of iteration 3'],
  [['fork', 'tiny_vq@2', '--as', 'tiny_vq'], 1, "run 'tiny_vq' already exists"],
  [['fork', 'tiny_vq@2', '--as', '../other'], 2, "'../other' is not a valid run name"],
  [['resume', 'tiny_vq', '--set', 'run_name=other'], 2, 'run_name cannot change when a run continues'],
  [['resume', 'tiny_vq', '--set', 'num_iteration=9'], 2, 'did you mean num_iterations?'],
  [['fork', 'tiny_vq@2', '--as', 'other', '--allow-changes', 'sed'], 2, "unknown setting 'sed'"],
  [['fork', 'tiny_vq@2', '--as', 'other', '--allow-changes', 'seed'], 2, '--allow-changes names seed'],
])('rejects %j in one message and leaves everything as it was', async (args, code, message) => {
  const before = readFileSync(join(base, 'tiny_vq/run.json'), 'utf8');
  expect(await main([...args, '--exp-dir', base])).toBe(code);
  expect(written.error).toContain(message);
  expect(readFileSync(join(base, 'tiny_vq/run.json'), 'utf8')).toBe(before);
  expect(readdirSync(base)).toEqual(['tiny_vq']);
});

it('names the runs there are when the name is wrong', async () => {
  expect(await main(['resume', 'tiny_vqq', '--exp-dir', base])).toBe(1);
  expect(written.error).toContain(`no run named 'tiny_vqq' in ${base}\n  Did you mean 'tiny_vq'?`);
});

/** A folder on a read-only file system, where this machine has one. */
const readOnly = ['/sys/kernel', '/proc/sys'].find((dir) => {
  try {
    mkdirSync(join(dir, 'editrl-probe'));
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EROFS';
  }
  rmSync(join(dir, 'editrl-probe'), { recursive: true });
  return false;
});

it.skipIf(readOnly === undefined)('reports that a disk is read-only (needs a machine that has one)', async () => {
  const sets = [`base_exp_dir=${JSON.stringify(readOnly)}`];
  const config = await loadConfig({ file: 'configs/tiny_vq.jsonnet', sets });
  expect(() => claimRun(claimRequest(config, { command: [], versions: {} }))).toThrow('cannot write (EROFS)');
});

it('forks with the settings of the iteration that it begins with, and names those that changed later', async () => {
  const base2 = mkdtempSync(join(tmpdir(), 'editrl-fork-settings-'));
  try {
    const claim = async (...sets: string[]): Promise<void> => {
      const config = await loadConfig({
        file: 'configs/tiny_vq.jsonnet',
        sets: [`base_exp_dir=${JSON.stringify(base2)}`, 'num_iterations=4', ...sets],
      });
      const allowChanges = sets.length === 0 ? [] : ['optimizer.learning_rate', 'seed'];
      const handle = claimRun(
        claimRequest({ ...config, allowChanges }, { command: ['run'], versions: { editrl: '0' } }),
      );
      for (const iteration of sets.length === 0 ? [2] : [4]) {
        saveCheckpoint(handle.paths, iteration, { 'trainer.json': '{}' });
      }
      handle.setState({ state: 'interrupted', iteration: 4 });
      handle.release();
    };
    await claim();
    await claim('optimizer.learning_rate=0.5', 'seed=9');
    const settingsOf = (name: string): unknown =>
      (JSON.parse(readFileSync(join(base2, name, 'run.json'), 'utf8')) as { settings: unknown }).settings;
    expect(settingsOf('tiny_vq')).toMatchObject({ optimizer: { learning_rate: 0.5 }, seed: 9 });
    const source = new RunPaths(base2, 'tiny_vq');
    forkRun(source, 2, 'early');
    expect(settingsOf('early')).toMatchObject({
      optimizer: { learning_rate: expect.not.closeTo(0.5) as number },
      seed: 42,
    });
    const record = must(readRecord(new RunPaths(base2, 'early')), 'the fork');
    expect(record.hash).toBe(resultHash(recordedSettings(record.settings)));
    forkRun(source, 4, 'late');
    expect(settingsOf('late')).toMatchObject({ optimizer: { learning_rate: 0.5 }, seed: 9 });
    const late = readRun(new RunPaths(base2, 'late'));
    expect(late.changed_settings).toEqual([
      { key: 'seed', before: 42, after: 9, iteration: 2 },
      { key: 'optimizer.learning_rate', before: expect.any(Number) as number, after: 0.5, iteration: 2 },
    ]);
    expect(formatReport(readRun(source))).toContain('seed: 42 -> 9 from iteration 3 on');
    expect(readRun(new RunPaths(base2, 'early')).changed_settings).toEqual([]);
  } finally {
    rmSync(base2, { recursive: true, force: true });
  }
});
