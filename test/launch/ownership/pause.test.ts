import { mkdirSync } from 'node:fs';
import { expect, it, vi } from 'vitest';
import { FileLock } from '../../../src/core/lock.js';
import { pauseAsOwner, restartDelayS } from '../../../src/launch/ownership/pause.js';
import { RunPaths } from '../../../src/run/paths.js';
import { readState, writeState } from '../../../src/run/state.js';
import { liveLock } from '../../../src/run/status.js';
import { requestStop } from '../../../src/run/stop_request.js';
import { testFolders } from '../../support/folder.js';

const newFolder = testFolders('pause');

function failed(): RunPaths {
  const paths = new RunPaths(newFolder(), 'mine');
  mkdirSync(paths.dir);
  writeState(paths, { state: 'failed', iteration: 4, num_iterations: 9, reason: 'it broke', stopped_early: false });
  return paths;
}

it('a run that fails again and again without getting further is started again ever later', () => {
  expect([0, 1, 2, 3, 6, 7, 20].map(restartDelayS)).toEqual([0, 1, 2, 4, 32, 60, 60]);
});

it('a run is held while its next start is waited for', async () => {
  const paths = failed();
  const waiting = pauseAsOwner(paths, 50, new AbortController().signal);
  expect(liveLock(paths)?.pid).toBe(process.pid);
  expect(await waiting).toBe(false);
  expect(liveLock(paths)).toBeNull();
  expect(readState(paths)).toMatchObject({ state: 'failed', reason: 'it broke' });
});

it('a disk that refuses a sign of life is asked again with the next', async () => {
  const paths = failed();
  const refusal = vi.spyOn(FileLock.prototype, 'heartbeat').mockImplementationOnce(() => {
    throw new Error('EIO');
  });
  expect(await pauseAsOwner(paths, 2500, new AbortController().signal)).toBe(false);
  refusal.mockImplementation(() => {
    throw new Error('somebody else has it');
  });
  await expect(pauseAsOwner(paths, 10, new AbortController().signal)).rejects.toThrow('somebody else has it');
  refusal.mockRestore();
});

it.each([
  ['save', 'stopped on request'],
  ['now', 'killed with `editrl stop --now`'],
] as const)('which ends where the run is asked to stop (%s)', async (how, reason) => {
  const paths = failed();
  const waiting = pauseAsOwner(paths, 3_600_000, new AbortController().signal);
  requestStop(paths, how);
  expect(await waiting).toBe(true);
  expect(readState(paths)).toMatchObject({ state: 'interrupted', iteration: 4, reason });
  expect(liveLock(paths)).toBeNull();
});
