import { mkdirSync, mkdtempSync, rmSync, utimesSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { readCell, slurmPlacement, waitForStaleLock } from '../../../src/launch/slurm/cell.js';
import { acquireLock, type LockWorld } from '../../../src/run/claim/lock.js';
import { RunPaths } from '../../../src/run/paths.js';
import { externalRun } from './support.js';

let base: string;
beforeEach(() => {
  base = mkdtempSync(join(tmpdir(), 'editrl-cell-'));
});
afterEach(() => {
  rmSync(base, { recursive: true, force: true });
});

describe('a cell', () => {
  it('is a line of its file', () => {
    const file = join(base, 'cells.jsonl');
    const { config } = externalRun('b');
    writeFileSync(file, `${JSON.stringify(externalRun('a').config)}\n${JSON.stringify(config)}\n`);
    expect(readCell(file, '1')).toEqual(config);
    expect(() => readCell(file, '2')).toThrow("found the index '2'; allowed: 0 to 1");
    expect(() => readCell(file, '-1')).toThrow("found the index '-1'");
    expect(() => readCell(join(base, 'none'), '0')).toThrow('cannot read the file of cells');
  });

  it('has the GPUs and cores that Slurm gave its task', () => {
    const { launch } = externalRun('a', { launch: { processes: 2 } }).config.settings;
    expect(slurmPlacement(launch, { CUDA_VISIBLE_DEVICES: '2,3', SLURM_CPUS_ON_NODE: '9' })).toEqual({
      devices: [2, 3],
      threads: 4,
    });
    expect(slurmPlacement(launch, { SLURM_CPUS_ON_NODE: '2' })).toEqual({ devices: [], threads: 1 });
    expect(slurmPlacement(launch, { CUDA_VISIBLE_DEVICES: 'GPU-1f' })).toBeUndefined();
  });
});

describe('a lock that a job left on another host', () => {
  /** A world whose clock moves only by sleeping. */
  function play(job: string, own: string, ended: boolean): { world: LockWorld; slept: () => number; paths: RunPaths } {
    const paths = new RunPaths(base, 'a');
    mkdirSync(paths.dir, { recursive: true });
    const owner = { token: 'old', host: 'there', pid: 1, process_start: null, slurm_job_id: job, acquired_at: '' };
    writeFileSync(paths.lock, JSON.stringify(owner));
    utimesSync(paths.lock, 1000, 1000);
    const world: LockWorld = {
      host: 'here',
      pid: 100,
      slurmJobId: own,
      nowMs: () => now * 1000,
      processStart: () => '1',
      slurmJobEnded: () => ended,
    };
    let now = 1030;
    sleepBy = (seconds) => {
      now += seconds;
      return Promise.resolve();
    };
    return { world, slept: () => now - 1030, paths };
  }
  let sleepBy: (seconds: number) => Promise<void>;
  const options = { sleep: (seconds: number): Promise<void> => sleepBy(seconds), say: (): void => undefined };

  it('is waited for until it is stale, where it is from an earlier attempt of this job, and then taken over', async () => {
    const { world, slept, paths } = play('7', '7', false);
    expect(() => acquireLock(paths, world)).toThrow('in use');
    await waitForStaleLock(paths, world, options);
    expect(slept()).toBeGreaterThan(90);
    acquireLock(paths, world).release();
  });

  it('is waited for where its job has ended, and not where it continues', async () => {
    const ended = play('6', '7', true);
    await waitForStaleLock(ended.paths, ended.world, options);
    acquireLock(ended.paths, ended.world).release();
    const live = play('6', '7', false);
    await waitForStaleLock(live.paths, live.world, options);
    expect(live.slept()).toBe(0);
    expect(() => acquireLock(live.paths, live.world)).toThrow('in use');
  });
});
