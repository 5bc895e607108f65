/** What becomes of checkpoints when the process or the machine stops between any two operations of the disk. */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, describe, expect, it, vi } from 'vitest';
import {
  applyRetention,
  checkpointProblems,
  cleanCheckpoints,
  latestWhole,
  listCheckpoints,
  saveCheckpoint,
} from '../../src/run/checkpoints.js';
import type * as safetensors from '../../src/core/safetensors.js';
import { encodeSafetensors } from '../../src/core/safetensors.js';
import { RunPaths } from '../../src/run/paths.js';
import { testFolders } from '../support/folder.js';
import { disk } from '../support/recording_disk.js';

/** Called before and after the header of a file of tensors is read. */
let onHeader: (moment: 'before' | 'after') => void = () => {};
vi.mock('../../src/core/safetensors.js', async (original) => {
  const module = await original<typeof safetensors>();
  const readSafetensorsIndex: typeof safetensors.readSafetensorsIndex = (...args) => {
    onHeader('before');
    const index = module.readSafetensorsIndex(...args);
    onHeader('after');
    return index;
  };
  return { ...module, readSafetensorsIndex };
});
vi.mock('node:fs', async (original) => (await import('../support/recording_disk.js')).recording(await original()));

const newFolder = testFolders('checkpoints');
const newRun = (): RunPaths => new RunPaths(newFolder(), 'run');
afterEach(() => disk.rest());

const files = (text: string): Record<string, string> => ({ 'policy.safetensors': text, 'trainer.json': `"${text}"` });

/** Does it to its end, or dies after so many operations; says whether it ended. */
function ends(paths: RunPaths, operations: number, action: () => void): boolean {
  disk.watch(paths.dir, operations);
  try {
    action();
    return !disk.died;
  } catch (error) {
    if (disk.died) return false;
    throw error;
  } finally {
    disk.rest();
  }
}

/** Dies after none, one, two, … operations of `action` on a run that `prepare` makes, until it ends; `check` sees what each left. */
function atEveryMoment(
  prepare: (paths: RunPaths) => void,
  action: (paths: RunPaths) => void,
  check: (paths: RunPaths, ended: boolean) => void,
): number {
  for (let operations = 0; ; operations++) {
    const paths = newRun();
    prepare(paths);
    const ended = ends(paths, operations, () => action(paths));
    check(paths, ended);
    if (ended) return operations;
  }
}

/** Fails unless nothing half-done is left once a next process has tidied up. */
function tidied(paths: RunPaths): void {
  cleanCheckpoints(paths);
  expect(readdirSync(paths.checkpointsDir).filter((name) => name.startsWith('.'))).toEqual([]);
  for (const iteration of listCheckpoints(paths)) {
    expect(checkpointProblems(paths.checkpoint(iteration), iteration)).toEqual([]);
  }
}

const textOf = (paths: RunPaths, iteration: number): string =>
  readFileSync(join(paths.checkpoint(iteration), 'policy.safetensors'), 'utf8');

describe('a checkpoint', () => {
  it('is on the disk, file by file and with its manifest, before it takes its name, and its name before the old one goes', () => {
    const paths = newRun();
    saveCheckpoint(paths, 7, files('old'));
    disk.watch(paths.checkpointsDir);
    saveCheckpoint(paths, 7, files('other'));
    expect(disk.log).toEqual([
      'remove .writing-000007',
      'make .writing-000007',
      'write .writing-000007/policy.safetensors',
      'sync .writing-000007/policy.safetensors',
      'write .writing-000007/trainer.json',
      'sync .writing-000007/trainer.json',
      'write .writing-000007/MANIFEST.json',
      'sync .writing-000007/MANIFEST.json',
      'sync .writing-000007',
      'remove .replaced-000007',
      'rename 000007 .replaced-000007',
      'rename .writing-000007 000007',
      'sync ',
      'remove .replaced-000007',
    ]);
  });

  it('is there as it was or as it is to be, wherever the process that replaces it dies', () => {
    const operations = atEveryMoment(
      (paths) => saveCheckpoint(paths, 7, files('old')),
      (paths) => saveCheckpoint(paths, 7, files('other')),
      (paths, ended) => {
        tidied(paths);
        expect(latestWhole(paths)).toMatchObject({ iteration: 7, problems: [] });
        expect(['other', ...(ended ? [] : ['old'])]).toContain(textOf(paths, 7));
      },
    );
    expect(operations).toBeGreaterThan(10);
  });

  it('leaves the one before alone, wherever the process that writes it dies', () => {
    atEveryMoment(
      (paths) => saveCheckpoint(paths, 7, files('old')),
      (paths) => saveCheckpoint(paths, 8, files('other')),
      (paths, ended) => {
        tidied(paths);
        expect(textOf(paths, 7)).toBe('old');
        if (ended) expect(latestWhole(paths)?.iteration).toBe(8);
      },
    );
  });

  it('is whole or gone, wherever the process that removes it dies', () => {
    atEveryMoment(
      (paths) => {
        for (const iteration of [1, 2, 3]) saveCheckpoint(paths, iteration, files('any'));
      },
      (paths) => void applyRetention(paths, { keep_every: 0, keep_last: 1 }),
      (paths, ended) => {
        tidied(paths);
        expect(latestWhole(paths)?.iteration).toBe(3);
        if (ended) expect(listCheckpoints(paths)).toEqual([3]);
      },
    );
  });
});

it('tidies up wherever the process that tidies up dies', () => {
  atEveryMoment(
    (paths) => {
      saveCheckpoint(paths, 7, files('old'));
      // Dead between the two renames.
      ends(paths, 11, () => saveCheckpoint(paths, 7, files('other')));
      expect(existsSync(paths.checkpoint(7))).toBe(false);
    },
    cleanCheckpoints,
    (paths) => {
      tidied(paths);
      expect(textOf(paths, 7)).toBe('old');
    },
  );
});

it.each(['before', 'after'])(
  'finds the newest one of a run that removes the one that is looked at, %s a header',
  (when) => {
    const paths = newRun();
    const content = {
      'policy.safetensors': encodeSafetensors(new Map([['w', { shape: [1], data: Float32Array.of(1) }]])),
    };
    saveCheckpoint(paths, 1, content);
    onHeader = (moment) => {
      if (moment !== when) return;
      onHeader = () => {};
      saveCheckpoint(paths, 2, content);
      expect(applyRetention(paths, { keep_every: 0, keep_last: 1 })).toEqual([1]);
    };
    expect(latestWhole(paths)).toEqual({ iteration: 2, dir: paths.checkpoint(2), problems: [] });
  },
);
