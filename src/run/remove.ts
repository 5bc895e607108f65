/** Removes runs that no process uses and no other run depends on. */
import { existsSync, lstatSync, readdirSync, renameSync, rmSync } from 'node:fs';
import { basename, isAbsolute, join, resolve } from 'node:path';
import { EditrlError, RunError } from '../core/errors.js';
import { diskError, renameAside, stagingFolder } from '../core/files.js';
import { manifestDigest } from './checkpoints.js';
import { firstFew, listRuns } from './find.js';
import { acquireLock, lockProblem, readLock, realLockWorld, type LockWorld } from './claim/lock.js';
import { RunPaths } from './paths.js';
import { readRecord, type RecordedParent } from './record.js';
import { readState } from './state.js';

/** Prefix of a folder during removal. No run has such a name. */
export const REMOVING_PREFIX = '.removing-';

/** Activity in a directory of runs other than running runs. */
export interface FolderActivity {
  /** A description, such as `the sweep kl_ablation` or `Slurm job 77`. */
  readonly what: string;
  /** The run that it will start. Null if it may start any run. */
  readonly run: string | null;
}

export interface RemovalWorld {
  readonly underWay: readonly FolderActivity[];
  readonly lock?: LockWorld;
}

/** A run that must stay, with the reason. */
export interface KeptRun {
  readonly paths: RunPaths;
  readonly why: string;
}

/** Dependencies of the other runs in a folder: run names and paths. */
interface Start {
  readonly by: string;
  readonly parent: Partial<RecordedParent> | { readonly path: string };
}

/**
 * The runs that must stay while others in their folder are removed: runs that a process uses or is about to use, and runs that a remaining run depends on
 * or may depend on.
 */
export function runsToKeep(runs: readonly RunPaths[], world: RemovalWorld): KeptRun[] {
  if (runs.length === 0) return [];
  const going = new Set(runs.map(({ runName }) => runName));
  const starts: Start[] = [];
  const unreadable: string[] = [];
  for (const other of listRuns([runs[0].baseExpDir]).filter(({ runName }) => !going.has(runName))) {
    try {
      const record = readRecord(other);
      for (const parent of record?.parents ?? []) starts.push({ by: other.runName, parent });
      for (const path of pathsIn(record?.settings)) starts.push({ by: other.runName, parent: { path } });
    } catch (error) {
      if (!(error instanceof EditrlError)) throw error;
      unreadable.push(other.runName);
    }
  }
  return runs.flatMap((paths) => {
    const why = whyKept(paths, starts, unreadable, world);
    return why === null ? [] : [{ paths, why }];
  });
}

function whyKept(
  paths: RunPaths,
  starts: readonly Start[],
  unreadable: readonly string[],
  { underWay, lock = realLockWorld() }: RemovalWorld,
): string | null {
  try {
    const held = readLock(paths, lock);
    const holder = held === null ? null : lockProblem(held, lock);
    if (holder !== null) return `it is in use by ${holder.holder}`;
  } catch (error) {
    if (!(error instanceof EditrlError)) throw error;
    return `its owner is unknown: ${error.message} (${paths.lock})`;
  }
  const submitted = underWay.find(({ run }) => run === paths.runName);
  if (submitted !== undefined) return `${submitted.what} will run it`;
  const users = [...new Set(starts.filter((start) => isStart(paths, start)).map(({ by }) => by))];
  if (users.length > 0) return `${firstFew(users)} ${users.length === 1 ? 'depends' : 'depend'} on it`;
  if (unreadable.length > 0) return `the parents of ${unreadable.join(', ')} are unreadable`;
  // No run depends on an unfinished run, which would be retrained.
  if (underWay.length > 0 && isFinished(paths)) return `${underWay[0].what} may depend on it`;
  return null;
}

/** The absolute paths in some settings. A model may be the path of a checkpoint. */
function pathsIn(value: unknown): string[] {
  if (typeof value === 'string') return isAbsolute(value) ? [value] : [];
  return typeof value === 'object' && value !== null ? Object.values(value).flatMap(pathsIn) : [];
}

/** Whether a run is a parent. A run that was set aside may contain a checkpoint that another run pinned under the old name. */
function isStart(paths: RunPaths, { parent }: Start): boolean {
  if ('path' in parent) return `${resolve(String(parent.path))}/`.startsWith(`${resolve(paths.dir)}/`);
  const { run, iteration, manifest } = parent;
  if (run === paths.runName) return true;
  if (run === undefined || run !== recordedName(paths) || iteration === undefined || manifest === undefined) {
    return false;
  }
  return manifestDigest(paths.checkpoint(iteration)) === manifest;
}

/** The recorded name of a run, or its folder's name. */
export function recordedName(paths: RunPaths): string {
  try {
    return readRecord(paths)?.run_name ?? paths.runName;
  } catch (error) {
    if (error instanceof EditrlError) return paths.runName;
    throw error;
  }
}

/** A run with an unreadable state counts as finished. */
function isFinished(paths: RunPaths): boolean {
  try {
    return readState(paths)?.state === 'finished';
  } catch (error) {
    if (error instanceof EditrlError) return true;
    throw error;
  }
}

/**
 * Removes runs of one directory. Their folders are renamed first and then checked again, so that a run that started before is noticed and a later one
 * cannot find them. Raises RunError and restores all folders if a process uses a run, if one must stay, or for a disk error.
 */
export async function removeRuns(
  runs: readonly RunPaths[],
  underWay: () => Promise<readonly FolderActivity[]>,
  lock: LockWorld = realLockWorld(),
): Promise<void> {
  const moved: RunPaths[] = [];
  try {
    for (const paths of runs) moved.push(moveAway(paths, lock));
    throwIfAnyKept(runsToKeep(moved, { underWay: await underWay(), lock }));
  } catch (error) {
    for (const paths of moved) putBack(paths);
    throw error;
  }
  for (const { dir } of moved) removePath(dir);
}

/** Renames first, because a partly removed folder must never look like a run. */
function moveAway(paths: RunPaths, world: LockWorld): RunPaths {
  const lock = acquireLock(paths, world);
  try {
    const moved = new RunPaths(paths.baseExpDir, paths.runName, stagingFolder(paths.baseExpDir, REMOVING_PREFIX));
    renameSync(paths.dir, moved.dir);
    // The lock moved with the folder and has no owner there.
    rmSync(moved.lock, { force: true });
    return moved;
  } catch (cause) {
    throw diskError(paths.dir, cause);
  } finally {
    lock.release();
  }
}

function putBack({ baseExpDir, runName, dir }: RunPaths): void {
  const place = new RunPaths(baseExpDir, runName).dir;
  try {
    renameSync(dir, place);
  } catch (cause) {
    throw new RunError(`the run must stay but could not be restored; it is in ${dir}`, {
      where: place,
      next: 'Its name is in use. Rename the folder before `editrl prune` removes it.',
      cause,
    });
  }
}

/** Removes a file or a folder. Raises RunError for a disk error. */
export function removePath(path: string): void {
  try {
    rmSync(path, { recursive: true, force: true });
  } catch (cause) {
    throw diskError(path, cause);
  }
}

/** Raises one RunError with the reason for each run that stays. */
export function throwIfAnyKept(kept: readonly KeptRun[]): void {
  if (kept.length === 0) return;
  const lines = kept.map(({ paths, why }) => `kept ${paths.runName}: ${why}`);
  throw new RunError(`nothing was removed: ${lines.join('\n  ')}`, {
    where: kept[0].paths.baseExpDir,
    next: 'Stop running runs, also name the dependent runs, or leave these out.',
  });
}

/**
 * Bytes that a removal frees. A file with other hard links (forks share files) counts only if all links are removed.
 */
export function bytesFreed(places: readonly string[]): number {
  const shared = new Map<string, number>();
  let bytes = 0;
  const walk = (path: string): void => {
    const entry = lstatSync(path, { throwIfNoEntry: false });
    if (entry === undefined) return;
    if (entry.isDirectory()) {
      for (const name of readdirSync(path)) walk(join(path, name));
      return;
    }
    const file = `${entry.dev}:${entry.ino}`;
    const seen = (shared.get(file) ?? 0) + 1;
    shared.set(file, seen);
    if (seen === entry.nlink) bytes += entry.size;
  };
  for (const place of places) walk(place);
  return bytes;
}

export interface SetAsideRuns {
  readonly unneeded: readonly RunPaths[];
  readonly kept: readonly KeptRun[];
}

/** Raises RunError for an unreadable folder. */
export function findSetAside(baseExpDir: string, world: RemovalWorld): SetAsideRuns {
  let unneeded = existsSync(baseExpDir) ? listRuns([baseExpDir]).filter(isSetAside) : [];
  const kept: KeptRun[] = [];
  // A run that stays also keeps its parents.
  for (let more = runsToKeep(unneeded, world); more.length > 0; more = runsToKeep(unneeded, world)) {
    kept.push(...more);
    unneeded = unneeded.filter((paths) => !more.some((each) => each.paths === paths));
  }
  return { unneeded, kept };
}

/** Whether a run was set aside and not started under its new name since. */
function isSetAside(paths: RunPaths): boolean {
  const name = /^(.+)\.old-\d+$/.exec(paths.runName)?.[1];
  return name !== undefined && recordedName(paths) === name;
}

/**
 * Renames the folder of a run in place. It stays a normal run. Returns the new folder, or null if there was no run. Raises RunError if another process
 * owns the run, or for a disk error.
 */
export function setAside(paths: RunPaths, world: LockWorld = realLockWorld()): string | null {
  if (!existsSync(paths.dir)) return null;
  const lock = acquireLock(paths, world);
  try {
    const aside = renameAside(paths.dir, 'old');
    try {
      // The lock moved with the folder and has no owner there.
      rmSync(join(aside, basename(paths.lock)), { force: true });
    } catch (cause) {
      throw diskError(paths.dir, cause);
    }
    return aside;
  } finally {
    lock.release();
  }
}
