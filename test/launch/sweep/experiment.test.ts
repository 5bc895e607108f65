import { existsSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { afterEach, expect, it, vi } from 'vitest';
import { loadExperiment } from '../../../src/config/experiment/load.js';
import { mainMemory, memoryOf } from '../../../src/launch/machine/estimate.js';
import { shapesOf } from '../../../src/launch/machine/shapes.js';
import { chooseCells, prepareSweep, sweep, type PreparedSweep } from '../../../src/launch/sweep/experiment.js';
import { claimRun } from '../../../src/run/claim/claim.js';
import { claimRequest } from '../../../src/run/claim/claim_request.js';
import { RunPaths } from '../../../src/run/paths.js';
import { testFolders } from '../../support/folder.js';
import { FakeRunner, FakeView, settle } from './fakes.js';

const newFolder = testFolders('sweep');
afterEach(() => void vi.restoreAllMocks());
const configs = resolve(import.meta.dirname, '../../../configs');

class HearingView extends FakeView {
  readonly remarks: string[] = [];
  override remark(sentence?: string): void {
    if (sentence !== undefined) this.remarks.push(sentence);
  }
}

/** Three runs, each of which takes one unit of the memory that is free. */
const devices = { gpus: [], cpus: 4 };
const memory = memoryOf(shapesOf(new Map()), devices);

async function prepared(units: number, maxParallel: number | null): Promise<PreparedSweep> {
  const folder = newFolder();
  const file = join(folder, 'three.jsonnet');
  const base = `(import '${configs}/text_start.jsonnet') + (import '${configs}/lib/text_tiny.libsonnet')`;
  writeFileSync(
    file,
    `{ name: 'three', base: ${base}, axes: { seed: { [s]: { seed: std.parseInt(s) } for s in ['1', '2', '3'] } } }`,
  );
  const env = { ...process.env, APP__BASE_EXP_DIR: join(folder, 'runs'), APP__DATA_DIR: join(folder, 'data') };
  const limits = { maxParallel, retries: 0, failFast: false };
  const found = prepareSweep(await loadExperiment({ file, env }), { only: null, failed: false }, limits);
  const each = mainMemory(memory(found.jobs[0].config.settings));
  // After it was prepared: servers that start meanwhile take memory.
  vi.spyOn(process, 'constrainedMemory').mockReturnValue(units * each);
  return { ...found, devices };
}

it.each([
  [2.5, null, [2, 3], /^at most 2 runs at once/],
  [3.5, null, [3], null],
  [1.5, 2, [2, 3], /^warning: --max-parallel lets 2 runs go at once/],
] as const)(
  'a sweep with memory for %d runs and --max-parallel %s starts %j and says so',
  async (units, maxParallel, started, remark) => {
    const runner = new FakeRunner();
    const view = new HearingView();
    const ended = sweep(await prepared(units, maxParallel), runner, view, new AbortController().signal, memory);
    for (const count of started) {
      await settle();
      expect(runner.names).toHaveLength(count);
      runner.attempts[0].end();
    }
    for (const attempt of runner.attempts) attempt.end();
    await ended;
    expect(view.remarks).toEqual(remark === null ? [] : [expect.stringMatching(remark)]);
  },
);

it('starts a cell that failed with other settings from scratch, and no other, and counts it as failed', async () => {
  const folder = newFolder();
  const load = async (amount: number) => {
    const file = join(folder, 'cells.json');
    const base = {
      run_name: 'cells',
      base_exp_dir: join(folder, 'runs'),
      task: 'external',
      num_iterations: 5,
      launch: { command: ['train', String(amount)] },
    };
    const axes = {
      cell: Object.fromEntries(['failed', 'stopped', 'done'].map((name) => [name, { seed: name.length }])),
    };
    writeFileSync(file, JSON.stringify({ name: 'cells', base, axes }));
    return loadExperiment({ file });
  };
  const limits = { maxParallel: null, retries: 0, failFast: false };
  const before = await load(1);
  for (const { run_name, config } of before.cells) {
    const handle = claimRun(claimRequest(config, { command: [], versions: {}, devices: [], parents: [] }));
    if (handle.kind === 'finished') throw new Error('it is finished already');
    const state = ({ failed: 'failed', stopped: 'interrupted', done: 'finished' } as const)[
      run_name.split('-')[1] as 'failed' | 'stopped' | 'done'
    ];
    handle.setState({ state, iteration: state === 'finished' ? 5 : 2 });
    writeFileSync(join(handle.paths.dir, 'mark'), '');
    handle.release();
  }
  const after = await load(2);
  expect(chooseCells(after, { only: null, failed: true }).map(({ run_name }) => run_name)).toEqual([
    'cells__cell-failed',
  ]);
  const runner = new FakeRunner();
  const view = new HearingView();
  const all = { only: null, failed: false };
  const swept = sweep(prepareSweep(after, all, limits), runner, view, new AbortController().signal, memory);
  await settle();
  expect(runner.names).toEqual(['cells__cell-failed']);
  const paths = new RunPaths(join(folder, 'runs'), 'cells__cell-failed');
  expect(existsSync(paths.dir)).toBe(false);
  expect(existsSync(join(`${paths.dir}.old-1`, 'mark'))).toBe(true);
  expect(view.remarks).toContainEqual(expect.stringContaining('starts from scratch'));
  runner.attempts[0].end();
  const { runs } = await swept;
  expect(runs.find(({ run_name }) => run_name === 'cells__cell-stopped')).toMatchObject({ state: 'failed' });
  expect(runs.find(({ run_name }) => run_name === 'cells__cell-done')).toMatchObject({ state: 'failed' });
});
