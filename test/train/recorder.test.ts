import { existsSync } from 'node:fs';
import { afterEach, expect, it } from 'vitest';
import { claimRun, type RunHandle } from '../../src/run/claim/claim.js';
import { realLockWorld } from '../../src/run/claim/lock.js';
import { openRunLog, type RunLog } from '../../src/run/logs.js';
import { MetricsJournal, readMetrics } from '../../src/run/metrics.js';
import { RunRecorder } from '../../src/train/recorder.js';
import { testFolders } from '../support/folder.js';

const newFolder = testFolders('recorder');
let open: { handle: RunHandle; log: RunLog } | null = null;
afterEach(async () => {
  open?.handle.release();
  await open?.log.close();
});

const FROZEN = 1_000_001;

/** Claims `run` in a folder. */
function claimIn(folder: string, world = realLockWorld()): RunHandle {
  const settings = { run_name: 'run', base_exp_dir: folder, num_iterations: 9 };
  return claimRun({ settings, compare: () => [], resultHash: 'a', importHash: 'b', command: [], versions: {} }, world);
}

/** Keeps a run that saves at every iteration. */
function keeperOf(handle: RunHandle, journal: MetricsJournal): RunRecorder {
  const log = openRunLog({ paths: handle.paths, attempt: 1, rank: 0, terminal: null });
  open = { handle, log };
  const checkpoint = { save_every_n_iterations: 1, keep_every_n_iterations: null, keep_last: 1, keep_best: null };
  const training = { files: async () => ({ 'trainer.json': '{}' }) };
  return new RunRecorder({ handle, log, journal }, training, checkpoint, [], 9, () => true);
}

it('leaves the folder alone once another process has taken the run over', async () => {
  const folder = newFolder();
  const handle = claimIn(folder, { ...realLockWorld(), pid: FROZEN, processStart: () => '1' });
  const recorder = keeperOf(handle, new MetricsJournal(handle.paths));
  await recorder.recordMetrics(0, {});
  const second = claimIn(folder, { ...realLockWorld(), processStart: (pid) => (pid === FROZEN ? null : '2') });
  const before = readMetrics(handle.paths);

  await expect(recorder.recordMetrics(1, { 'reward/mean': 1 })).rejects.toThrow('no longer owns the run');
  await expect(recorder.save(1)).rejects.toThrow('no longer owns the run');
  expect(() => recorder.end({ state: 'finished' })).toThrow('no longer owns the run');
  expect(readMetrics(handle.paths)).toEqual(before);
  expect(existsSync(handle.paths.checkpointsDir)).toBe(false);
  second.requireOwned();
  second.release();
});

it('brings the metrics to the disk before the checkpoint that follows them, and writes none without them', async () => {
  const handle = claimIn(newFolder());
  const { checkpointsDir } = handle.paths;
  let refuses = true;
  const seen: boolean[] = [];
  const sync = (): void => {
    seen.push(existsSync(checkpointsDir));
    if (refuses) throw new Error('no space');
  };
  const recorder = keeperOf(handle, Object.assign(new MetricsJournal(handle.paths), { sync }));
  await expect(recorder.save(1)).rejects.toThrow('no space');
  refuses = false;
  await recorder.save(1);
  expect(seen).toEqual([false, false]);
  expect(existsSync(handle.paths.checkpoint(1))).toBe(true);
  // Saved once, it is not saved again.
  await recorder.save(1);
  expect(seen).toHaveLength(2);
});
