/** The journal on a disk that gives less than it is asked for, and on one that fails to make durable. */
import type * as fs from 'node:fs';
import { join } from 'node:path';
import { afterEach, expect, it, vi } from 'vitest';
import { Journal } from '../../src/run/journal.js';
import { testFolders } from '../support/folder.js';

const disk = vi.hoisted(() => ({ halves: false, fails: false, synced: 0, open: 0 }));
vi.mock('node:fs', async (original) => {
  const real = await original<typeof fs>();
  const readSync = (file: number, bytes: Uint8Array, offset: number, length: number, position: number): number =>
    real.readSync(file, bytes, offset, disk.halves ? Math.ceil(length / 2) : length, position);
  const fsyncSync = (file: number): void => {
    if (disk.fails) throw Object.assign(new Error('a bad block'), { code: 'EIO' });
    disk.synced++;
    real.fsyncSync(file);
  };
  const openSync = (...args: Parameters<typeof fs.openSync>): number => {
    disk.open++;
    return real.openSync(...args);
  };
  const closeSync = (file: number): void => {
    disk.open--;
    real.closeSync(file);
  };
  return { ...real, readSync, fsyncSync, openSync, closeSync };
});

const newFolder = testFolders('journal');
afterEach(() => Object.assign(disk, { halves: false, fails: false, synced: 0, open: 0 }));

it('reads on where the disk gives less than it was asked for', () => {
  const path = join(newFolder(), 'lines.jsonl');
  const first = new Journal(path);
  first.append({ iteration: 1 });
  const { offset, length } = first.append({ text: 'some words' });
  first.close();
  disk.halves = true;
  const journal = new Journal(path);
  expect(journal.repairedBytes).toBe(0);
  expect(journal.log.at(offset, length)).toBe('{"text":"some words"}');
  journal.close();
});

it('is durable when it says so, and says when it is not', () => {
  const path = join(newFolder(), 'lines.jsonl');
  const journal = new Journal(path);
  journal.append({ iteration: 1 });
  journal.sync();
  expect(disk.synced).toBe(1);
  disk.fails = true;
  expect(() => journal.sync()).toThrow('cannot write (EIO)');
  journal.close();
});

it('holds no file open once it is closed', () => {
  const journal = new Journal(join(newFolder(), 'lines.jsonl'));
  expect(disk.open).toBe(1);
  journal.close();
  expect(disk.open).toBe(0);
});
