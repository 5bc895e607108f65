/** A lock where the file system has no hard links. */
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it, vi } from 'vitest';
import { realLockWorld, readLockFile, takeLock } from '../../src/core/lock.js';
import { testFolders } from '../support/folder.js';

vi.mock(import('node:fs'), async (original) => ({
  ...(await original()),
  linkSync: () => {
    throw Object.assign(new Error('no links here'), { code: 'EPERM' });
  },
}));

const newFolder = testFolders('lock-copies');

it('belongs to one at a time, and is taken over, also without hard links', () => {
  const dir = newFolder();
  const path = join(dir, 'lock');
  const world = realLockWorld();
  const refuse = (): never => {
    throw new Error('in use');
  };
  const first = takeLock(path, refuse, world);
  expect(() => takeLock(path, refuse, world)).toThrow('in use');
  const second = takeLock(path, () => undefined, world);
  expect([first.heartbeat(), second.heartbeat()]).toEqual([false, true]);
  expect(readLockFile(path, world)?.token).toBe(second.owner.token);
  first.release();
  second.release();
  expect(readdirSync(dir)).toEqual([]);
});
