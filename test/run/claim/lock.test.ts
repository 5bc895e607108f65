import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeEach, describe, expect, it } from 'vitest';
import {
  acquireLock,
  processStart,
  readLock,
  realLockWorld,
  type LockOwner,
  type LockWorld,
} from '../../../src/run/claim/lock.js';
import { RunPaths } from '../../../src/run/paths.js';
import { leaveLock as leaveLockAt } from '../left_lock.js';

const base = mkdtempSync(join(tmpdir(), 'editrl-lock-'));
let counter = 0;
let paths: RunPaths;
beforeEach(() => {
  paths = new RunPaths(base, `run${counter++}`);
});
afterAll(() => {
  rmSync(base, { recursive: true, force: true });
});

const world = (change: Partial<LockWorld>): LockWorld => ({
  host: 'here',
  pid: 100,
  slurmJobId: null,
  nowMs: () => Date.now(),
  processStart: () => '5555',
  slurmJobEnded: () => null,
  ...change,
});

const leaveLock = (of: Partial<LockOwner>, ageS: number): void => leaveLockAt(paths, of, ageS);

function refusal(take: () => unknown): string {
  try {
    take();
  } catch (error) {
    return (error as { toText(): string })
      .toText()
      .replaceAll(base, '<runs>')
      .replace(/run\d+/, '<run>');
  }
  return 'not refused';
}

describe('holding a lock', () => {
  it('is exclusive, says who holds it, and leaves nothing behind', () => {
    const lock = acquireLock(paths);
    expect(readLock(paths)?.pid).toBe(process.pid);
    if (process.platform === 'linux') expect(readLock(paths)?.boot_id).toMatch(/^[0-9a-f-]{36}$/);
    expect(readLock(paths)?.process_start).toBe(processStart(process.pid));
    expect(() => acquireLock(paths)).toThrow(/in use by process \d+ on this machine/);
    lock.heartbeat();
    lock.release();
    lock.release();
    expect(readdirSync(paths.dir)).toEqual([]);
    acquireLock(paths).release();
  });
});

it.each([
  ["the run's folder", (): string => paths.dir],
  ['its lock', (): string => paths.lock],
])('reports that %s was removed', (what, removed) => {
  const lock = acquireLock(paths);
  rmSync(removed(), { recursive: true });
  expect(() => lock.heartbeat()).toThrow(`this process no longer owns the run: ${what} was removed`);
  lock.release();
  expect(existsSync(paths.lock)).toBe(false);
});

describe('taking over', () => {
  it('rejects while the process of the same machine lives', () => {
    leaveLock({ process_start: '5555' }, 3000);
    expect(refusal(() => acquireLock(paths, world({})))).toMatch(
      /in use by process 42 on this machine \(here; last heartbeat 50 min ago\)[^]*`editrl stop`/,
    );
  });

  it('takes over on the same machine when the process is gone or its number belongs to another', () => {
    leaveLock({}, 1);
    acquireLock(paths, world({ processStart: (pid) => (pid === 42 ? null : '9') })).release();
    leaveLock({ process_start: '1' }, 1);
    acquireLock(paths, world({ processStart: () => '2' })).release();
    expect(readdirSync(paths.dir)).toEqual([]);
  });

  it('knows no process of a host of its own name in another container or before a restart, and waits for its heartbeat', () => {
    const ours = { bootId: 'boot', pidNamespace: 'pid:[1]', processStart: () => null };
    for (const theirs of [{ pid_namespace: 'pid:[2]' }, { boot_id: 'other' }]) {
      leaveLock(theirs, 100);
      expect(refusal(() => acquireLock(paths, world(ours)))).toContain(
        'in use by process 42 on here, in another container or before a restart (last heartbeat 100 s ago)',
      );
      leaveLock(theirs, 130);
      acquireLock(paths, world(ours)).release();
    }
    for (const theirs of [{}, { boot_id: null, pid_namespace: null }, { boot_id: 'boot', pid_namespace: 'pid:[1]' }]) {
      leaveLock(theirs, 1);
      acquireLock(paths, world(ours)).release();
    }
    leaveLock({ boot_id: 'boot', pid_namespace: 'pid:[1]' }, 1);
    acquireLock(paths, world({ processStart: () => null })).release();
  });

  it('rejects on another machine while the heartbeat is fresh', () => {
    leaveLock({ host: 'node7', slurm_job_id: '812' }, 100);
    expect(refusal(() => acquireLock(paths, world({})))).toMatch(
      /process 42 on node7 \(last heartbeat 100 s ago, Slurm job 812\)[^]*older than 120 s/,
    );
  });

  it('takes over from another machine when the heartbeat is stale, unless Slurm still knows the job', () => {
    leaveLock({ host: 'node7', slurm_job_id: '812' }, 130);
    expect(refusal(() => acquireLock(paths, world({ slurmJobEnded: () => false })))).toContain('scancel 812');
    const lock = acquireLock(paths, world({ slurmJobEnded: () => true }));
    expect(readLock(paths)?.token).toBe(lock.owner.token);
    lock.release();
  });

  it('walks past a process that died while it took over', () => {
    leaveLock({ token: 'old' }, 1);
    writeFileSync(`${paths.lock}.after.old`, JSON.stringify({ ...readLock(paths), token: 'second', pid: 43 }));
    const dead = world({ processStart: (pid) => (pid === 100 ? '9' : null) });
    const lock = acquireLock(paths, dead);
    expect(readdirSync(paths.dir)).toEqual(['lock.json']);
    lock.release();
  });

  it('asks for help with a lock that is no lock', () => {
    mkdirSync(paths.dir, { recursive: true });
    writeFileSync(paths.lock, '{}');
    expect(refusal(() => acquireLock(paths, world({})))).toContain('Then remove the file');
  });

  it('sees a real process live and die', async () => {
    const child = spawn(process.execPath, ['-e', 'setInterval(() => {}, 1000)']);
    await once(child, 'spawn');
    const pid = child.pid ?? 0;
    leaveLock({ host: realLockWorld().host, pid, process_start: processStart(pid) }, 0);
    expect(() => acquireLock(paths)).toThrow(`process ${pid} on this machine`);
    const exit = once(child, 'exit');
    child.kill('SIGKILL');
    await exit;
    acquireLock(paths).release();
  });
});
