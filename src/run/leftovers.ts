/** What no run needs in a folder of runs: runs and checkpoints that were set aside, and half-made files of crashes. */
import { existsSync, readdirSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { isAbandoned } from '../core/staging.js';
import { listRuns } from './find.js';
import { acquireLock, lockProblem, readLock, realLockWorld, type LockWorld } from './lock.js';
import { RunPaths, writtenFolders } from './paths.js';
import { bytesFreed, recordedName, removePath, removeRuns, REMOVING_PREFIX, runsToKeep } from './remove.js';
import type { KeptRun, RemovalWorld, FolderActivity } from './remove.js';

export interface Leftover {
  readonly path: string;
  readonly what: 'run set aside' | 'checkpoint set aside' | 'left by a crash';
  /** Bytes freed when all of them are removed. */
  readonly bytes: number;
  /** The run that contains it; null if it is a folder of its own. */
  readonly run: RunPaths | null;
}

export interface Leftovers {
  readonly found: readonly Leftover[];
  /** Runs that were set aside but are still needed. */
  readonly kept: readonly KeptRun[];
}

/** A file without a lock is taken for a dead process's once it is this old. */
const ABANDONED_AFTER_MS = 3600 * 1000;

/** Searches a folder of runs; skips runs that a process holds. */
export function findLeftovers(baseExpDir: string, world: RemovalWorld): Leftovers {
  if (!existsSync(baseExpDir)) return { found: [], kept: [] };
  const runs = listRuns([baseExpDir]);
  let going = runs.filter(isSetAside);
  const kept: KeptRun[] = [];
  // A run that stays may start from another one, which then stays as well.
  for (let more = runsToKeep(going, world); more.length > 0; more = runsToKeep(going, world)) {
    kept.push(...more);
    going = going.filter((paths) => !more.some((each) => each.paths === paths));
  }
  const others = runs.filter((paths) => !going.includes(paths) && !isHeld(paths, world));
  const listed: Omit<Leftover, 'bytes'>[] = [
    ...going.map(({ dir }) => ({ path: dir, what: 'run set aside' as const, run: null })),
    ...others.flatMap((run) => leftoversOf(run).map((leftover) => ({ ...leftover, run }))),
    ...abandoned(baseExpDir, world).map((path) => ({ path, what: 'left by a crash' as const, run: null })),
  ];
  return { found: listed.map((leftover) => ({ ...leftover, bytes: bytesFreed([leftover.path]) })), kept };
}

/**
 * Removes what was found, holding each run's lock meanwhile. Raises RunError when a run has begun since, or begun to start from one that was set
 * aside, or when the disk refuses.
 */
export async function removeLeftovers(
  found: readonly Leftover[],
  underWay: (baseExpDir: string) => Promise<readonly FolderActivity[]>,
  lockWorld: LockWorld = realLockWorld(),
): Promise<void> {
  const aside = found.flatMap(({ path, what }) => (what === 'run set aside' ? RunPaths.ofDirectory(path) : []));
  for (const base of new Set(aside.map(({ baseExpDir }) => baseExpDir))) {
    const here = aside.filter(({ baseExpDir }) => baseExpDir === base);
    await removeRuns(here, () => underWay(base), lockWorld);
  }
  for (const { path, what, run } of found) if (run === null && what !== 'run set aside') removePath(path);
  for (const run of new Set(found.flatMap((leftover) => leftover.run ?? []))) {
    const lock = acquireLock(run, lockWorld);
    try {
      // A run that has been active since has cleaned up itself, and may have restored something.
      const still = new Set(leftoversOf(run).map(({ path }) => path));
      for (const { path } of found.filter((leftover) => leftover.run === run && still.has(leftover.path))) {
        removePath(path);
      }
    } finally {
      lock.release();
    }
  }
}

/** Whether it has the name that `--fresh` gives to what it sets aside, and was not started under that name since. */
function isSetAside(paths: RunPaths): boolean {
  const name = /^(.+)\.old-\d+$/.exec(paths.runName)?.[1];
  return name !== undefined && recordedName(paths) === name;
}

function isHeld(paths: RunPaths, { lock = realLockWorld() }: RemovalWorld): boolean {
  const held = readLock(paths, lock);
  return held !== null && lockProblem(held, lock) !== null;
}

/** Files of a run's folder that are not read again. */
function leftoversOf(paths: RunPaths): Pick<Leftover, 'path' | 'what'>[] {
  const checkpoints = listOrNothing(paths.checkpointsDir);
  const place = (name: string): string => join(paths.checkpointsDir, name);
  // If a replaced checkpoint's successor never arrived, the run restores it.
  const isIdle = (name: string): boolean => {
    const replaced = /^\.replaced-(\d{6,})-/.exec(name)?.[1];
    return replaced === undefined ? /^\.(writing|removed)-/.test(name) : existsSync(paths.checkpoint(Number(replaced)));
  };
  return [
    ...checkpoints
      .filter((name) => name.startsWith('corrupt-'))
      .map((name) => ({ path: place(name), what: 'checkpoint set aside' as const })),
    ...checkpoints.filter(isIdle).map((name) => ({ path: place(name), what: 'left by a crash' as const })),
    ...[...writtenFolders(paths), paths.rescoredDir].flatMap((dir) =>
      listOrNothing(dir)
        .filter((name) => name.endsWith('.tmp') && !name.startsWith('lock.json'))
        .map((name) => ({ path: join(dir, name), what: 'left by a crash' as const })),
    ),
  ];
}

/** Names that another process may be working on; it may even restore a run that it has moved away. */
const MAY_BE_AT_WORK = /^\.(removing|waiting|forking)-|\.\d+\.tmp$/;

/** Leftovers beside the runs: half-removed and half-forked runs, and half-written files. */
function abandoned(baseExpDir: string, { lock = realLockWorld() }: RemovalWorld): string[] {
  const isOld = (name: string): boolean => {
    const entry = statSync(join(baseExpDir, name), { throwIfNoEntry: false });
    return entry !== undefined && lock.nowMs() - entry.mtimeMs > ABANDONED_AFTER_MS;
  };
  return listOrNothing(baseExpDir)
    .filter((name) => isAbandoned(name, REMOVING_PREFIX) || (MAY_BE_AT_WORK.test(name) && isOld(name)))
    .map((name) => join(baseExpDir, name));
}

function listOrNothing(dir: string): string[] {
  return existsSync(dir) ? readdirSync(dir).sort() : [];
}
