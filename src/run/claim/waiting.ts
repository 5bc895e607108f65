/**
 * A run that waits for its parents has no record with their names yet. A lock file next to the runs marks it as waiting. Until the run has a record,
 * nothing that it may need is removed.
 */
import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { EditrlError } from '../../core/errors.js';
import { readLockFile, realLockWorld, ownerStatus, takeLock, type LockWorld } from '../../core/lock.js';
import { stagingFolder } from '../../core/files.js';

/** Prefix of such a file's name. */
const WAITING = '.waiting-';
/** Ends the run's name in the file name. Run names cannot contain it. */
const END = '+';

/** Marks a run as waiting until the returned function is called, which may be called repeatedly. Raises RunError for a disk error. */
export function recordWaiting(baseExpDir: string, runName: string, world: LockWorld = realLockWorld()): () => void {
  // Several processes may wait for the same run, each with its own file.
  const lock = takeLock(stagingFolder(baseExpDir, `${WAITING}${runName}${END}`), () => undefined, world);
  lock.keepAlive({ onLost: () => {} });
  return () => lock.release();
}

/** The waiting runs of a folder by name, without runs whose process is gone. */
export function waitingRuns(baseExpDir: string, world: LockWorld = realLockWorld()): string[] {
  const names = existsSync(baseExpDir) ? readdirSync(baseExpDir) : [];
  const waiting = names.flatMap((name) => {
    const end = name.indexOf(END);
    if (!name.startsWith(WAITING) || end < 0 || name.endsWith('.tmp')) return [];
    return isOver(join(baseExpDir, name), world) ? [] : [name.slice(WAITING.length, end)];
  });
  return [...new Set(waiting)].sort();
}

/** Whether the process that wrote such a file is gone. False for anything but a plain file. */
function isOver(path: string, world: LockWorld): boolean {
  try {
    const owner = readLockFile(path, world)?.owner ?? null;
    return owner === null || ownerStatus(owner, world) === 'gone';
  } catch (error) {
    if (error instanceof EditrlError) return false;
    throw error;
  }
}
