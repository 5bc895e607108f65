import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { RunError } from '../../../src/core/errors.js';
import { realLockWorld, type FileLock } from '../../../src/core/lock.js';
import { holdServerFolder, SERVER_LOCK, withServerEnded } from '../../../src/run/claim/training_server_lock.js';
import { ManualClock, settle } from '../../core/manual_clock.js';
import { testFolders } from '../../support/folder.js';

const folders = testFolders('server-lock');
const OTHER = { token: 'of another', host: 'another-machine', pid: 1 };

function prepare(held: object | null) {
  const folder = folders();
  if (held !== null) writeFileSync(join(folder, SERVER_LOCK), JSON.stringify(held));
  const clock = new ManualClock();
  const from = Date.now();
  const world = { ...realLockWorld(), nowMs: () => from + clock.now(), slurmJobEnded: () => null };
  const over = new AbortController();
  const told: string[] = [];
  const user = {
    over: over.signal,
    notice: (line: string) => void told.push(line),
    lost: (error: Error) => void told.push(`lost: ${error.message}`),
  };
  const take = (): Promise<FileLock> => holdServerFolder(folder, user, world, clock);
  return { folder, clock, world, over, told, take };
}

describe('the folder of what a training server saves', () => {
  it('is held by one server at a time', async () => {
    const { folder, world, take } = prepare(null);
    const lock = await take();
    await expect(take()).rejects.toThrow(RunError);
    expect(() => withServerEnded(folder, () => null, world)).toThrow('uses this folder');
    lock.release();
    expect(() => withServerEnded(folder, () => null, world)).not.toThrow();
    (await take()).release();
  });

  it('is taken over from a machine that failed, once it was silent for long enough', async () => {
    const { clock, told, take } = prepare(OTHER);
    let lock: FileLock | null = null;
    const taking = take().then((taken) => (lock = taken));
    await settle();
    await clock.pass(119_000);
    expect(lock).toBeNull();
    const waiting = 'waiting until its heartbeat is older than 120 s';
    expect(told).toEqual([`the training server of process 1 on another-machine uses this folder: ${waiting}`]); // prettier-ignore
    await clock.pass(3000);
    (await taking).release();
  });

  it('is waited for no longer than the run is wanted', async () => {
    const { clock, over, take } = prepare(OTHER);
    const taking = take().catch((error: unknown) => error);
    await clock.pass(5000);
    over.abort();
    await clock.pass(1000);
    expect(String(await taking)).toContain('process 1 on another-machine');
  });

  it('is not taken from a holder that cannot be identified', async () => {
    const { take } = prepare([]);
    await expect(take()).rejects.toThrow('training server of another process');
  });

  it('is held while it is copied', () => {
    const { folder, world } = prepare(null);
    withServerEnded(folder, () => {
      expect(() => withServerEnded(folder, () => null, world)).toThrow('uses this folder');
    });
    expect(withServerEnded(folder, () => 3, world)).toBe(3);
  });
});
