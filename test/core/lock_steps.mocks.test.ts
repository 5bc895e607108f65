/** That a lock has one holder at a time, for every order of the steps of those who claim it. */
import { afterEach, describe, expect, it, vi } from 'vitest';
import { RunError } from '../../src/core/errors.js';
import { acquireLock, type LockWorld } from '../../src/run/claim/lock.js';
import { RunPaths } from '../../src/run/paths.js';
import { explore, SteppedDisk, type Program, type World } from './stepped_claims.js';

const stepped = vi.hoisted(() => ({ disk: null as unknown as SteppedDisk }));

vi.mock(import('node:fs'), async (original) => {
  const real = await original();
  const disk = (): SteppedDisk => stepped.disk;
  return {
    ...real,
    mkdirSync: (() => undefined) as unknown as typeof real.mkdirSync,
    writeFileSync: ((path: string, text: string) => disk().write(path, text)) as typeof real.writeFileSync,
    linkSync: ((from: string, to: string) => disk().link(from, to)) as typeof real.linkSync,
    copyFileSync: ((from: string, to: string) => disk().copy(from, to)) as typeof real.copyFileSync,
    renameSync: ((from: string, to: string) => disk().rename(from, to)) as typeof real.renameSync,
    rmSync: ((path: string) => disk().remove(path)) as typeof real.rmSync,
    statSync: ((path: string) =>
      disk().exists(path) ? { mtimeMs: 0, isFile: () => true } : undefined) as unknown as typeof real.statSync,
    openSync: (() => 1) as unknown as typeof real.openSync,
    closeSync: () => undefined,
  };
});
vi.mock(import('../../src/core/plain_file.js'), async (original) => ({
  ...(await original()),
  readPlainText: (path: string) => stepped.disk.read(path),
}));
vi.mock(import('node:crypto'), async (original) => ({
  ...(await original()),
  // Each process claims once.
  randomUUID: (() => stepped.disk.currentName) as unknown as () => `${string}-${string}-${string}-${string}-${string}`,
}));

const paths = new RunPaths('/runs', 'contested');
const DEAD = 99;

function lockOf(token: string, pid: number): string {
  return `${JSON.stringify({ token, host: 'here', pid, process_start: '1', slurm_job_id: null, acquired_at: '' })}\n`;
}

/** What lies there when the processes begin. */
const beginnings: Readonly<Record<string, readonly (readonly [string, string])[]>> = {
  'no lock': [],
  'the lock of a dead process': [[paths.lock, lockOf('first', DEAD)]],
  'a dead process that died as it took over from a dead one': [
    [paths.lock, lockOf('first', DEAD)],
    [`${paths.lock}.after.first`, lockOf('second', DEAD)],
  ],
  'a dead process that died after it had taken over, before it tidied': [
    [paths.lock, lockOf('second', DEAD)],
    [`${paths.lock}.after.first`, lockOf('second', DEAD)],
  ],
};

function worldOf(processes: number, beginning: readonly (readonly [string, string])[]): World {
  return {
    files: new Map(beginning.map(([path], i) => [path, i])),
    inodes: beginning.map(([, text]) => ({ text })),
    actors: Array.from({ length: processes }, (_, i) => ({ name: `p${i + 1}`, told: [], outcome: 'under way' })),
  };
}

const program: Program = (name, holds, releases) => {
  const disk = stepped.disk;
  const world: LockWorld = {
    host: 'here',
    pid: Number(name.slice(1)),
    slurmJobId: null,
    nowMs: () => 0,
    processStart: (pid) => (pid === Number(name.slice(1)) || (pid !== DEAD && disk.lives(pid)) ? '1' : null),
    slurmJobEnded: () => null,
  };
  try {
    const lock = acquireLock(paths, world);
    holds();
    releases();
    lock.release();
    return 'released';
  } catch (error) {
    // Also by a lock that is being copied: it names nobody yet.
    if (error instanceof RunError) return 'refused';
    throw error;
  }
};

afterEach(() => vi.restoreAllMocks());

describe.each(Object.entries(beginnings))('beginning with %s', (_, beginning) => {
  it.each([
    ['links', true],
    ['exclusive copies', false],
  ])(
    'one process at a time holds the lock, in every order of the steps of two with a death between any two: with %s',
    (_kind, links) => {
      stepped.disk = new SteppedDisk(links);
      const { states, ends, overlap } = explore(stepped.disk, worldOf(2, beginning), program, 1);
      expect(overlap).toBeNull();
      expect(states).toBeGreaterThan(100);
      // Where nobody dies, somebody wins, and the lock is free in the end.
      for (const { actors, files } of ends) {
        const outcomes = actors.map(({ outcome }) => outcome);
        if (outcomes.includes('dead')) continue;
        expect(outcomes).toContain('released');
        expect([...files.keys()].filter((path) => path === paths.lock)).toEqual([]);
      }
    },
  );
});

it('one of three at a time holds a lock that was free, in every order of their steps', () => {
  stepped.disk = new SteppedDisk(true);
  const { states, overlap } = explore(stepped.disk, worldOf(3, []), program, 0);
  expect(overlap).toBeNull();
  expect(states).toBeGreaterThan(10_000);
});

it('finds two holders where a lock looks before it takes over, instead of owning the succession', () => {
  stepped.disk = new SteppedDisk(true);
  const disk = stepped.disk;
  const naive: Program = (name, holds, releases) => {
    if (disk.read(paths.lock) !== null) return 'refused';
    disk.write(paths.lock, name);
    holds();
    releases();
    disk.remove(paths.lock);
    return 'released';
  };
  expect(explore(disk, worldOf(2, []), naive, 0).overlap).toEqual([
    expect.stringContaining('read'),
    expect.stringContaining('read'),
    expect.stringContaining('write'),
    expect.stringContaining('write'),
  ]);
});
