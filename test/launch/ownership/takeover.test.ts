import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { GuardedChild } from '../../../src/launch/processes/child.js';
import { isGroupAlive, Guardian, launcherOf } from '../../../src/launch/processes/guardian.js';
import { endLeftoverWorkers, recordWorkers, recordEndForOwner } from '../../../src/launch/ownership/takeover.js';
import { acquireLock, processStart } from '../../../src/run/lock.js';
import { RunPaths } from '../../../src/run/paths.js';
import { writeRecord, type RunRecord } from '../../../src/run/record.js';
import { readState, writeState } from '../../../src/run/state.js';

let dir: string;
const guardian = new Guardian();
beforeAll(() => {
  dir = mkdtempSync(join(tmpdir(), 'editrl-takeover-'));
});
afterAll(() => {
  guardian.close();
  rmSync(dir, { recursive: true, force: true });
});

function newRun(name: string): RunPaths {
  const paths = new RunPaths(dir, name);
  mkdirSync(paths.dir, { recursive: true });
  return paths;
}

async function sleeper(mark: string): Promise<GuardedChild> {
  const nothing = (): void => {};
  const command = ['sleep', '60'];
  const options = { command, env: process.env, mark, ipc: false, graceS: 0.2, onLine: nothing, onMessage: nothing };
  return GuardedChild.start(options, guardian);
}

describe('what an earlier attempt left running', () => {
  it('is ended, and nothing else', async () => {
    const paths = newRun('left');
    const [mark, otherMark] = [guardian.markAttempt(), guardian.markAttempt()];
    const children = [await sleeper(mark), await sleeper(otherMark)];
    const [mine, other] = children;
    expect(launcherOf(mine.pid)).toEqual({ pid: process.pid, start: processStart(process.pid) });
    const worker = { rank: 0, pid: mine.pid, start: mine.start, send: () => {}, signal: () => {} };
    // A number that was given to another process since.
    const stranger = { ...worker, rank: 1, pid: other.pid, start: '1' };
    recordWorkers(paths, { mark, workers: [worker, stranger] });
    await endLeftoverWorkers(paths);
    expect(await mine.ended).toMatchObject({ signal: 'SIGTERM' });
    expect(isGroupAlive(mine.pid)).toBe(false);
    expect(other.isAlive).toBe(true);
    other.signal('SIGKILL');
    await other.ended;
  });

  it('may be nothing', async () => {
    await expect(endLeftoverWorkers(newRun('nothing'))).resolves.toBeUndefined();
  });
});

describe('the state of a run whose owner died', () => {
  const end = { state: 'failed', reason: 'rank 0 was ended by SIGKILL' } as const;
  const running = { state: 'running', iteration: 3, num_iterations: 9, reason: null, stopped_early: false } as const;

  function died(name: string, attempts: number): RunPaths {
    const paths = newRun(name);
    writeRecord(paths, { format: 1, settings: {}, attempts: Array.from({ length: attempts }) } as unknown as RunRecord);
    writeState(paths, running);
    return paths;
  }

  it('says how it ended, with its iteration', () => {
    const paths = died('died', 2);
    recordEndForOwner(paths, 2, end);
    expect(readState(paths)).toMatchObject({ ...end, iteration: 3 });
    const other = { state: 'failed', reason: 'another reason' } as const;
    recordEndForOwner(paths, 2, other);
    expect(readState(paths)?.reason).toBe(end.reason);
  });

  it('is left alone when a later attempt or a living owner has the run', () => {
    const later = died('later', 3);
    recordEndForOwner(later, 2, end);
    expect(readState(later)?.state).toBe('running');
    const held = died('held', 1);
    const lock = acquireLock(held);
    recordEndForOwner(held, 1, end);
    lock.release();
    expect(readState(held)?.state).toBe('running');
  });
});
