/** What a lock is whatever it stands for; whose words are on it is tested where they are: runs, gateways. */
import { mkdirSync, readdirSync, renameSync, rmdirSync, utimesSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { afterEach, describe, expect, it, vi } from 'vitest';
import {
  readLockFile,
  realLockWorld,
  ownerStatus,
  STALE_AFTER_S,
  takeLock,
  type FileLock,
  type FoundLock,
} from '../../src/core/lock.js';
import { testFolders } from '../support/folder.js';

const newFolder = testFolders('lock');
const world = { ...realLockWorld(), host: 'here', slurmJobId: null, bootId: null, pidNamespace: null };

/** A lock file of some text, whose owner was heard of so many seconds ago. */
function leave(path: string, text: string, ageS: number): void {
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(path, text);
  const then = Date.now() / 1000 - ageS;
  utimesSync(path, then, then);
}

it.each(['', '{"tok', '{"token":"x"}', '1234\n', 'null'])(
  'leaves it to its user what a file is worth that says %j',
  (text) => {
    const path = join(newFolder(), 'a.lock');
    leave(path, text, 50);
    const seen: FoundLock[] = [];
    const refuse = (found: FoundLock): void => {
      seen.push(found);
      if (seen.length === 1) throw new Error('not yet');
    };
    expect(() => takeLock(path, refuse, world)).toThrow('not yet');
    expect(readdirSync(dirname(path))).toEqual(['a.lock']);
    const lock = takeLock(path, refuse, world);
    expect(seen.map(({ owner }) => owner)).toEqual([null, null]);
    expect(seen[0].ageS).toBeGreaterThanOrEqual(49);
    expect(readLockFile(path, world)?.owner).toMatchObject({ token: lock.owner.token, pid: process.pid });
    expect(lock.heartbeat()).toBe(true);
    lock.release();
    expect([lock.isHeld, lock.heartbeat()]).toEqual([false, false]);
    expect(readdirSync(dirname(path))).toEqual([]);
  },
);

it('is lost, and left alone, where its file says something else', () => {
  const path = join(newFolder(), 'a.lock');
  const lock = takeLock(path, () => {}, world);
  writeFileSync(path, 'of another');
  expect(lock.heartbeat()).toBe(false);
  lock.release();
  expect(readdirSync(dirname(path))).toEqual(['a.lock']);
});

describe('a lock that is kept alive', () => {
  const path = (): string => join(newFolder(), 'a.lock');
  afterEach(() => void vi.useRealTimers());

  it('gives signs of life until it is released', () => {
    vi.useFakeTimers();
    const lock = takeLock(path(), () => {}, realLockWorld());
    const lost = vi.fn();
    const ageS = (): number => readLockFile(lock.path, realLockWorld())?.ageS ?? NaN;
    lock.keepAlive({ onLost: lost });
    vi.advanceTimersByTime(9_999);
    expect(ageS()).toBeGreaterThan(9);
    vi.advanceTimersByTime(1);
    expect(ageS()).toBeLessThan(1);
    lock.release();
    expect(vi.getTimerCount()).toBe(0);
    expect(lost).not.toHaveBeenCalled();
  });

  it('tries again if the disk rejects one, and reports the first in a row', () => {
    vi.useFakeTimers();
    const lock = takeLock(path(), () => {}, world);
    const [onLost, onRefused] = [vi.fn(), vi.fn()];
    lock.keepAlive({ onLost, onRefused });
    renameSync(lock.path, `${lock.path}.aside`);
    mkdirSync(lock.path);
    vi.advanceTimersByTime(30_000);
    rmdirSync(lock.path);
    renameSync(`${lock.path}.aside`, lock.path);
    vi.advanceTimersByTime(30_000);
    expect([onLost.mock.calls.length, onRefused.mock.calls.length]).toEqual([0, 1]);
    lock.release();
    expect(readdirSync(dirname(lock.path))).toEqual([]);
  });

  it('reports once that another process has taken it, and leaves it there', () => {
    vi.useFakeTimers();
    const lock = takeLock(path(), () => {}, world);
    const onLost = vi.fn();
    lock.keepAlive({ onLost });
    writeFileSync(lock.path, JSON.stringify({ token: 'other', host: 'there', pid: 1 }));
    vi.advanceTimersByTime(60_000);
    expect(onLost).toHaveBeenCalledTimes(1);
    lock.release();
    expect(readdirSync(dirname(lock.path))).toEqual(['a.lock']);
  });
});

it('knows what there is to know of an owner', () => {
  const processStart = (pid: number): string | null => ({ 1: '11', 2: null, 3: '' })[pid] ?? null;
  const owner = { token: 't', host: 'here', process_start: '11', slurm_job_id: null, acquired_at: '', ageS: 1e6 };
  const of = (more: object, slurm: object = {}): string =>
    ownerStatus({ ...owner, pid: 1, ...more }, { ...world, processStart, slurmJobEnded: () => false, ...slurm });
  expect(of({})).toBe('lives');
  expect(of({ process_start: '10' })).toBe('gone');
  expect(of({ pid: 2 })).toBe('gone');
  // A start that is not known tells nobody apart.
  for (const unknown of [{ pid: 3 }, { process_start: null }, { process_start: '' }]) expect(of(unknown)).toBe('lives');
  const elsewhere = { host: 'there', pid: 2 };
  expect(of({ ...elsewhere, ageS: STALE_AFTER_S })).toBe('last_seen');
  expect(of({ ...elsewhere, ageS: STALE_AFTER_S + 1 })).toBe('gone');
  expect(of({ ...elsewhere, slurm_job_id: '7' })).toBe('job');
  expect(of({ ...elsewhere, slurm_job_id: '7' }, { slurmJobId: '7' })).toBe('gone');
  for (const answer of [true, null]) {
    expect(of({ ...elsewhere, slurm_job_id: '7' }, { slurmJobEnded: () => answer })).toBe('gone');
  }
});

it('is not taken from a process that took it over while the previous lock was checked', () => {
  const path = join(newFolder(), 'a.lock');
  leave(path, '{"token":"gone"}', 50);
  let other: FileLock | null = null;
  const refuse = ({ token }: FoundLock): void => {
    if (other !== null) throw new Error(`held by ${token === other.owner.token ? 'the other' : token}`);
    other = takeLock(path, () => {}, world);
  };
  expect(() => takeLock(path, refuse, world)).toThrow('held by the other');
  expect((other as FileLock | null)?.isHeld).toBe(true);
  expect(readdirSync(dirname(path))).toEqual(['a.lock']);
});
