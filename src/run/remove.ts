/** Removes runs that nothing needs: neither a process that works on them nor a run that starts from them. */
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

/** Prefix of a folder that is being removed: no run has such a name. */
export const REMOVING_PREFIX = '.removing-';

/** Activity in a folder of runs besides the runs that processes hold. */
export interface FolderActivity {
  /** For people: `the sweep kl_ablation`, `Slurm job 77`. */
  readonly what: string;
  /** The run that it is going to hold; null if it may start any run. */
  readonly run: string | null;
}

export interface RemovalWorld {
  readonly underWay: readonly FolderActivity[];
  readonly lock?: LockWorld;
}

/** A run that has to stay, and why. */
export interface KeptRun {
  readonly paths: RunPaths;
  readonly why: string;
}

/** What other runs of a folder start from: runs by name, and paths. */
interface Start {
  readonly by: string;
  readonly parent: Partial<RecordedParent> | { readonly path: string };
}

/**
 * The runs that have to stay while the others of their folder go: a run that a process holds or is about to hold, and a run that one which stays
 * starts from or may start from.
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
    return `nobody can tell who holds it: ${error.message} (${paths.lock})`;
  }
  const submitted = underWay.find(({ run }) => run === paths.runName);
  if (submitted !== undefined) return `${submitted.what} is about to run it`;
  const users = [...new Set(starts.filter((start) => isStart(paths, start)).map(({ by }) => by))];
  if (users.length > 0) return `${firstFew(users)} ${users.length === 1 ? 'starts' : 'start'} from it`;
  if (unreadable.length > 0) return `what ${unreadable.join(', ')} starts from cannot be read`;
  // Nobody starts from an unfinished run; it would be retrained.
  if (underWay.length > 0 && isFinished(paths)) return `${underWay[0].what} is under way and may start from it`;
  return null;
}

/** The absolute paths among some settings: a model may be given as the path of a checkpoint. */
function pathsIn(value: unknown): string[] {
  if (typeof value === 'string') return isAbsolute(value) ? [value] : [];
  return typeof value === 'object' && value !== null ? Object.values(value).flatMap(pathsIn) : [];
}

/** A run that was set aside can also hold the very checkpoint that another run has pinned under its old name. */
function isStart(paths: RunPaths, { parent }: Start): boolean {
  if ('path' in parent) return `${resolve(String(parent.path))}/`.startsWith(`${resolve(paths.dir)}/`);
  const { run, iteration, manifest } = parent;
  if (run === paths.runName) return true;
  if (run === undefined || run !== recordedName(paths) || iteration === undefined || manifest === undefined) {
    return false;
  }
  return manifestDigest(paths.checkpoint(iteration)) === manifest;
}

/** The name under which a run was started; its folder's name if the record does not say. */
export function recordedName(paths: RunPaths): string {
  try {
    return readRecord(paths)?.run_name ?? paths.runName;
  } catch (error) {
    if (error instanceof EditrlError) return paths.runName;
    throw error;
  }
}

/** A run with an unreadable state may be finished. */
function isFinished(paths: RunPaths): boolean {
  try {
    return readState(paths)?.state === 'finished';
  } catch (error) {
    if (error instanceof EditrlError) return true;
    throw error;
  }
}

/**
 * Removes the folders of runs of one folder. They are moved away first and then checked once more: a run that starts from them later does not find
 * them, and one that had started before is seen. Raises RunError, with all of them restored, when a process holds one of them, when one has to stay,
 * or when the disk refuses.
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

/** Renames first: a half-removed folder must never look like a run. */
function moveAway(paths: RunPaths, world: LockWorld): RunPaths {
  const lock = acquireLock(paths, world);
  try {
    const moved = new RunPaths(paths.baseExpDir, paths.runName, stagingFolder(paths.baseExpDir, REMOVING_PREFIX));
    renameSync(paths.dir, moved.dir);
    // The lock moved with the folder, where nobody owns it.
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
    throw new RunError(`the run has to stay, and could not be put back into its place: it lies in ${dir}`, {
      where: place,
      next: 'Something else has that name by now: move the folder to another one before a later `editrl prune` removes it.',
      cause,
    });
  }
}

/** Removes a file or a folder. Raises RunError when the disk refuses. */
export function removePath(path: string): void {
  try {
    rmSync(path, { recursive: true, force: true });
  } catch (cause) {
    throw diskError(path, cause);
  }
}

/** Raises one RunError that gives the reason for each run that stays. */
export function throwIfAnyKept(kept: readonly KeptRun[]): void {
  if (kept.length === 0) return;
  const lines = kept.map(({ paths, why }) => `${paths.runName} stays: ${why}`);
  throw new RunError(`nothing was removed: ${lines.join('\n  ')}`, {
    where: kept[0].paths.baseExpDir,
    next: 'Stop what runs, name the runs that start from these as well, or leave these out.',
  });
}

/**
 * Bytes that removing some files and folders frees. A file that has other names (forks share their files) frees nothing unless those are removed too.
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

/** Raises RunError when the folder cannot be read. */
export function findSetAside(baseExpDir: string, world: RemovalWorld): SetAsideRuns {
  let unneeded = existsSync(baseExpDir) ? listRuns([baseExpDir]).filter(isSetAside) : [];
  const kept: KeptRun[] = [];
  // A run that stays may start from another one, which then stays as well.
  for (let more = runsToKeep(unneeded, world); more.length > 0; more = runsToKeep(unneeded, world)) {
    kept.push(...more);
    unneeded = unneeded.filter((paths) => !more.some((each) => each.paths === paths));
  }
  return { unneeded, kept };
}

/** Whether it has the name that is given to what is set aside, and was not started under that name since. */
function isSetAside(paths: RunPaths): boolean {
  const name = /^(.+)\.old-\d+$/.exec(paths.runName)?.[1];
  return name !== undefined && recordedName(paths) === name;
}

/**
 * Renames the folder of a run within its parent folder, where it is a run like any other; nothing is deleted. Returns the new folder, null if there
 * was none. Raises RunError when another process holds the run or the disk refuses.
 */
export function setAside(paths: RunPaths, world: LockWorld = realLockWorld()): string | null {
  if (!existsSync(paths.dir)) return null;
  const lock = acquireLock(paths, world);
  try {
    const aside = renameAside(paths.dir, 'old');
    try {
      // The lock moved with the folder, where nobody owns it.
      rmSync(join(aside, basename(paths.lock)), { force: true });
    } catch (cause) {
      throw diskError(paths.dir, cause);
    }
    return aside;
  } finally {
    lock.release();
  }
}
