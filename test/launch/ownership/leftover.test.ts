import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { GuardedChild } from '../../../src/launch/processes/child.js';
import { isGroupAlive, Guardian } from '../../../src/launch/processes/guardian.js';
import { endLeftoverWorkers, recordWorkers } from '../../../src/launch/ownership/owner.js';
import { RunPaths } from '../../../src/run/paths.js';

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
    const worker = { rank: 0, pid: mine.pid, start: mine.start, send: () => {}, signal: () => {} };
    // A number that was given to another process since, or that somebody else wrote there.
    const stranger = { ...worker, rank: 1, pid: other.pid, start: other.start };
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
