import { existsSync, linkSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { hostname } from 'node:os';
import { join } from 'node:path';
import { beforeEach, describe, expect, it } from 'vitest';
import { listCheckpoints, manifestDigest, saveCheckpoint } from '../../src/run/checkpoints.js';
import { acquireLock, realLockWorld } from '../../src/run/claim/lock.js';
import { RunPaths } from '../../src/run/paths.js';
import { bytesFreed, findSetAside, removeRuns, runsToKeep, setAside } from '../../src/run/remove.js';
import { writeState } from '../../src/run/state.js';
import { recordWaiting, waitingRuns } from '../../src/run/claim/waiting.js';
import { testFolders } from '../support/folder.js';

const folders = testFolders('remove');
const idle = { underWay: [] };
let base = '';
let made = 0;

beforeEach(() => {
  base = folders();
});

/** A finished run with a checkpoint, which starts from others as its record says. */
function run(name: string, parents: readonly object[] = []): RunPaths {
  const paths = new RunPaths(base, name);
  mkdirSync(paths.dir);
  const record = { format: 1, run_name: name, hash: 'h', settings: {}, parents, attempts: [] };
  writeFileSync(paths.record, JSON.stringify(record));
  saveCheckpoint(paths, 10, { 'policy.safetensors': `${name}, made as number ${(made += 1)}` });
  writeState(paths, { state: 'finished', iteration: 10, num_iterations: 10, reason: null, stopped_early: false });
  return paths;
}

function whyKept(...runs: RunPaths[]): string[] {
  return runsToKeep(runs, idle).map(({ paths, why }) => `${paths.runName}: ${why}`);
}

describe('runsToKeep', () => {
  it('keeps what another run starts from, unless that goes too', () => {
    const [start, rl] = [run('start'), run('rl', [{ run: 'start' }])];
    run('rl_2', [{ run: 'start' }]);
    expect(whyKept(start)).toEqual(['start: rl, rl_2 depend on it']);
    expect(whyKept(rl)).toEqual([]);
    expect(whyKept(start, rl)).toEqual(['start: rl_2 depends on it']);
    expect(whyKept(start, rl, new RunPaths(base, 'rl_2'))).toEqual([]);
  });

  it('keeps one that a process holds, and takes one whose process is gone', () => {
    const paths = run('held');
    const lock = acquireLock(paths);
    expect(whyKept(paths)).toEqual([expect.stringMatching(/^held: it is in use by process \d+ on this machine/)]);
    const { pid, ...owner } = JSON.parse(readFileSync(paths.lock, 'utf8')) as { pid: number };
    lock.release();
    writeFileSync(paths.lock, JSON.stringify({ ...owner, pid: pid === 1 ? 2 : 2 ** 22 + 1 }));
    expect(whyKept(paths)).toEqual([]);
  });

  it('keeps all where another record cannot be read', () => {
    const paths = run('start');
    writeFileSync(run('broken').record, '{');
    expect(whyKept(paths)).toEqual(['start: the parents of broken are unreadable']);
    expect(whyKept(new RunPaths(base, 'broken'))).toEqual([]);
  });

  it('keeps what a sweep or Slurm may start from, or is to run', () => {
    const [finished, failed] = [run('finished'), run('failed')];
    writeState(failed, { state: 'failed', iteration: 1, num_iterations: 10, reason: null, stopped_early: false });
    const kept = (what: string, name: string | null): string[] =>
      runsToKeep([finished, failed], { underWay: [{ what, run: name }] }).map(
        ({ paths, why }) => `${paths.runName}: ${why}`,
      );
    expect(kept('the sweep kl', null)).toEqual(['finished: the sweep kl may depend on it']);
    expect(kept('Slurm 7', 'failed')).toEqual(['finished: Slurm 7 may depend on it', 'failed: Slurm 7 will run it']);
  });
});

describe('removeRuns', () => {
  const nothing = async (): Promise<[]> => [];

  it('removes the folders and nothing else', async () => {
    const [gone, too] = [run('gone', [{ run: 'too' }]), run('too')];
    run('other');
    await removeRuns([gone, too], nothing);
    expect(readdirSync(base)).toEqual(['other']);
  });

  it('rejects one that a process holds, and puts the others back', async () => {
    const [other, paths] = [run('other'), run('held')];
    const lock = acquireLock(paths);
    await expect(removeRuns([other, paths], nothing)).rejects.toThrow('the run is in use by');
    expect([other, paths].map((each) => existsSync(each.checkpoint(10)))).toEqual([true, true]);
    lock.release();
    expect(readdirSync(base).sort()).toEqual(['held', 'other']);
    expect(readdirSync(other.dir).sort()).toEqual(['checkpoints', 'run.json', 'state.json']);
  });

  it('detects a run that has started from one since the check, and puts it back', async () => {
    const start = run('start');
    expect(whyKept(start)).toEqual([]);
    run('rl', [{ run: 'start' }]);
    await expect(removeRuns([start], nothing)).rejects.toThrow('kept start: rl depends on it');
    const sweep = async () => [{ what: 'the sweep kl', run: null }];
    await expect(removeRuns([run('b')], sweep)).rejects.toThrow('kept b: the sweep kl may');
    expect(readdirSync(base).sort()).toEqual(['b', 'rl', 'start']);
  });

  it('lets no one find one once it is decided, and keeps what cannot be put back', async () => {
    const start = run('start');
    const claim = async () => {
      expect(existsSync(start.dir)).toBe(false);
      expect(readdirSync(base)).toEqual([
        expect.stringMatching(new RegExp(`^\\.removing-${hostname()}-${process.pid}-[0-9a-f]{8}$`)),
      ]);
      mkdirSync(start.dir);
      writeFileSync(start.record, '{}');
      run('rl', [{ run: 'start' }]);
      return [];
    };
    await expect(removeRuns([start], claim)).rejects.toThrow(
      /must stay but could not be restored; it is in .*removing-/,
    );
    const [moved] = readdirSync(base).filter((name) => name.startsWith('.removing-'));
    expect(readdirSync(join(base, moved, 'checkpoints'))).toEqual(['000010']);
  });
});

describe('a run that waits for those that it starts from', () => {
  it('is known until it has its record, or its process is gone', () => {
    expect(waitingRuns(join(base, 'nothing'))).toEqual([]);
    const [one, again] = [recordWaiting(base, 'rl'), recordWaiting(base, 'rl')];
    const other = recordWaiting(base, 'a.b-c');
    expect(waitingRuns(base)).toEqual(['a.b-c', 'rl']);
    other();
    one();
    expect(waitingRuns(base)).toEqual(['rl']);
    expect(waitingRuns(base, { ...realLockWorld(), processStart: () => null })).toEqual([]);
    again();
    again();
    expect(readdirSync(base)).toEqual([]);
  });
});

describe('bytesFreed', () => {
  it('counts a file once all its names go', () => {
    for (const name of ['a', 'b']) mkdirSync(join(base, name));
    writeFileSync(join(base, 'a/shared'), 'x'.repeat(100));
    writeFileSync(join(base, 'a/own'), 'x'.repeat(7));
    linkSync(join(base, 'a/shared'), join(base, 'b/shared'));
    expect(bytesFreed([join(base, 'a')])).toBe(7);
    expect(bytesFreed([join(base, 'a'), join(base, 'b')])).toBe(107);
    expect(bytesFreed([join(base, 'nothing')])).toBe(0);
  });
});

describe('runs that were set aside', () => {
  it('are those of that name, unless one was started under it', () => {
    setAside(run('mine'));
    const manifest = manifestDigest(run('mine').checkpoint(10));
    run('rl', [{ run: 'mine', iteration: 10, manifest: manifest! }]);
    run('other.old-1');
    expect(findSetAside(base, idle).unneeded.map(({ runName }) => runName)).toEqual(['mine.old-1']);
    expect(findSetAside(join(base, 'nothing'), idle)).toEqual({ unneeded: [], kept: [] });
  });

  it('stay with the checkpoint that a run has pinned, and with what that one starts from', () => {
    const first = run('start', [{ run: 'vq.old-1' }]);
    const manifest = manifestDigest(first.checkpoint(10));
    setAside(run('vq'));
    setAside(first);
    run('start');
    run('rl', [{ run: 'start', iteration: 10, manifest: manifest! }]);
    const { unneeded, kept } = findSetAside(base, idle);
    expect(unneeded).toEqual([]);
    expect(kept.map(({ paths, why }) => `${paths.runName}: ${why}`)).toEqual([
      'start.old-1: rl depends on it',
      'vq.old-1: start.old-1 depends on it',
    ]);
    expect(listCheckpoints(new RunPaths(base, 'start.old-1'))).toEqual([10]);
  });
});
