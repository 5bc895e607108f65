import { existsSync } from 'node:fs';
import { afterEach, expect, it } from 'vitest';
import { claimRun, type RunHandle } from '../../src/run/claim.js';
import { realLockWorld, type LockWorld } from '../../src/run/lock.js';
import { openRunLog, type RunLog } from '../../src/run/logs.js';
import { readMetrics } from '../../src/run/metrics.js';
import { RunKeeper } from '../../src/train/keeper.js';
import { RunDirectoryTracker } from '../../src/track/tracker.js';
import { testFolders } from '../support/folder.js';

const newFolder = testFolders('keeper');
let open: { handle: RunHandle; log: RunLog } | null = null;
afterEach(async () => {
  open?.handle.release();
  await open?.log.close();
});

const FROZEN = 1_000_001;

it('leaves the folder alone once another process has taken the run over', async () => {
  const settings = { run_name: 'run', base_exp_dir: newFolder(), num_iterations: 9 };
  const claim = (world: LockWorld): RunHandle =>
    claimRun({ settings, compare: () => [], resultHash: 'a', importHash: 'b', command: [], versions: {} }, world);
  const handle = claim({ ...realLockWorld(), pid: FROZEN, processStart: () => '1' });
  const log = openRunLog({ paths: handle.paths, attempt: 1, rank: 0, terminal: null });
  open = { handle, log };
  const tracker = new RunDirectoryTracker(handle.paths);
  const checkpoint = { save_every_n_iterations: 1, keep_every_n_iterations: null, keep_last: 1 };
  const training = { files: () => ({ 'trainer.json': '{}' }) };
  const keeper = new RunKeeper({ handle, log, tracker }, training, checkpoint, [], 9, () => true);
  await keeper.measured(0, {});
  const second = claim({ ...realLockWorld(), processStart: (pid) => (pid === FROZEN ? null : '2') });
  const before = readMetrics(handle.paths);

  await expect(keeper.measured(1, { 'reward/mean': 1 })).rejects.toThrow('no longer owns the run');
  await expect(keeper.save(1)).rejects.toThrow('no longer owns the run');
  expect(() => keeper.end({ state: 'finished' })).toThrow('no longer owns the run');
  expect(readMetrics(handle.paths)).toEqual(before);
  expect(existsSync(handle.paths.checkpointsDir)).toBe(false);
  second.heartbeat();
  second.release();
});
