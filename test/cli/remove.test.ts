import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { main } from '../../src/cli/main.js';
import { ownExperiment } from '../../src/launch/sweep/lock.js';
import type { RunPaths } from '../../src/run/paths.js';
import { setAside } from '../../src/run/remove.js';
import { capture, RunFolder } from './run_directory.js';

let runs: RunFolder;
const all: RunFolder[] = [];
let written: { out: string; error: string };

beforeEach(() => {
  all.push((runs = new RunFolder()));
  written = capture();
});
afterEach(() => {
  vi.restoreAllMocks();
});
afterAll(() => {
  for (const folder of all) folder.remove();
});

/** A finished run with a file of 2,000,000 bytes. */
function make(name: string, parents: readonly object[] = []): RunPaths {
  const paths = runs.make(name, 'finished');
  const record = JSON.parse(readFileSync(paths.record, 'utf8')) as object;
  writeFileSync(paths.record, JSON.stringify({ ...record, parents }));
  writeFileSync(join(paths.dir, 'large'), Buffer.alloc(2_000_000));
  return paths;
}

function call(...words: string[]): Promise<number> {
  return main([...words, '--exp-dir', runs.dir]);
}

describe('editrl rm', () => {
  it('reports what removing would free, and then removes it', async () => {
    const [start, rl, other] = [make('start'), make('rl', [{ run: 'start' }]), make('other')];
    expect(await call('rm', 'start', 'rl', 'rl', '--dry-run')).toBe(0);
    expect(written.out).toMatch(
      new RegExp(
        `^would delete ${start.dir}\nwould delete ${rl.dir}\nThis would free 4,00\\d,\\d{3} bytes \\(4\\.0 MB\\)\\.\n$`,
      ),
    );
    expect(existsSync(start.dir) && existsSync(rl.dir)).toBe(true);
    written.out = '';
    expect(await call('rm', 'start', rl.dir, '--json')).toBe(0);
    const { removed, bytes, dry_run } = JSON.parse(written.out) as {
      removed: object[];
      bytes: number;
      dry_run: boolean;
    };
    expect(removed).toMatchObject([{ run_name: 'start', dir: start.dir }, { run_name: 'rl' }]);
    expect(bytes).toBeGreaterThan(4_000_000);
    expect(dry_run).toBe(false);
    expect([start, rl, other].map(({ dir }) => existsSync(dir))).toEqual([false, false, true]);
  });

  it('removes nothing where one has to stay, and explains why', async () => {
    const [start, other] = [make('start'), make('other')];
    make('rl', [{ run: 'start' }]);
    expect(await call('rm', 'other', 'start')).toBe(1);
    expect(written.error).toBe(
      `editrl: ${runs.dir}: nothing was removed: kept start: rl depends on it\n  Stop running runs, also name the dependent runs, or leave these out.\n`,
    );
    expect(existsSync(start.dir) && existsSync(other.dir)).toBe(true);
  });

  it('keeps finished runs while a sweep is under way in their folder', async () => {
    const paths = make('start');
    const owned = ownExperiment(runs.dir, 'kl');
    expect(await call('rm', 'start')).toBe(1);
    expect(written.error).toContain('kept start: the sweep kl may depend on it');
    owned.release();
    expect(await call('rm', 'start')).toBe(0);
    expect(existsSync(paths.dir)).toBe(false);
  });
});

describe('editrl prune', () => {
  it('reports what there is, what stays and why, and then removes it', async () => {
    const aside = setAside(make('mine'))!;
    const mine = make('mine');
    make('needed', [{ run: 'other.old-1' }]);
    const needed = setAside(make('other'))!;
    const kept = `kept ${needed}: needed depends on it`;
    expect(await call('prune', '--dry-run')).toBe(0);
    expect(written.out.split('\n')).toEqual([
      `would delete ${aside}`,
      kept,
      expect.stringMatching(/^This would free 2,000,\d{3} bytes \(2\.0 MB\)\.$/),
      '',
    ]);
    expect(existsSync(aside)).toBe(true);
    written.out = '';
    expect(await call('prune')).toBe(0);
    expect(written.out).toContain(`deleted ${aside}\n`);
    expect([aside, needed, mine.dir].map((dir) => existsSync(dir))).toEqual([false, true, true]);
    written.out = '';
    expect(await call('prune', '--json')).toBe(0);
    expect(JSON.parse(written.out)).toEqual({
      removed: [],
      kept: [{ run_name: 'other.old-1', dir: needed, why: 'needed depends on it' }],
      bytes: 0,
      dry_run: false,
    });
  });

  it('keeps what has a lock that cannot be read, and continues', async () => {
    const [piped, empty, sound] = ['piped', 'empty', 'sound'].map((name) => setAside(make(name))!);
    spawnSync('mkfifo', [join(piped, 'lock.json')]);
    writeFileSync(join(empty, 'lock.json'), '{}');
    spawnSync('mkfifo', [runs.make('other', 'running').lock]);
    expect(await call('prune')).toBe(0);
    expect([piped, empty, sound].map((dir) => existsSync(dir))).toEqual([true, true, false]);
    expect(written.out).toContain(`kept ${piped}: its owner is unknown: this is a named pipe`);
    expect(written.out).toContain(`kept ${empty}: its owner is unknown: the lock is unreadable`);
  });
});
