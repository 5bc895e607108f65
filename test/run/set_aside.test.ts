import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { acquireLock } from '../../src/run/claim/lock.js';
import { RunPaths } from '../../src/run/paths.js';
import { setAside } from '../../src/run/remove.js';
import { testFolders } from '../support/folder.js';

const newFolder = testFolders('aside');

function run(content: string, base = newFolder()): RunPaths {
  const paths = new RunPaths(base, 'mine');
  mkdirSync(paths.dir);
  writeFileSync(paths.record, content);
  return paths;
}

describe('setting a run aside', () => {
  it('keeps each under a name of its own, free and whole', () => {
    const paths = run('first');
    expect(setAside(paths)).toBe(`${paths.dir}.old-1`);
    expect(setAside(run('second', paths.baseExpDir))).toBe(`${paths.dir}.old-2`);
    expect(existsSync(paths.dir)).toBe(false);
    for (const [name, content] of [
      ['mine.old-1', 'first'],
      ['mine.old-2', 'second'],
    ]) {
      const aside = new RunPaths(paths.baseExpDir, name);
      expect(readFileSync(aside.record, 'utf8')).toBe(content);
      expect(existsSync(aside.lock)).toBe(false);
    }
  });

  it('does nothing if there is none', () => {
    expect(setAside(new RunPaths(join(newFolder(), 'nowhere'), 'mine'))).toBeNull();
  });

  it('rejects one that another process holds', () => {
    const paths = run('held');
    const lock = acquireLock(paths);
    expect(() => setAside(paths)).toThrow(/process \d+ on this machine/);
    lock.release();
    expect(readFileSync(paths.record, 'utf8')).toBe('held');
  });
});
