/**
 * A run that waits for those that it starts from has no record yet that names them: it says so by a lock file beside them, and until it has
 * its record nothing is removed there that it may need.
 */
import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { readLockFile, realLockWorld, standingOf, takeLock, type LockWorld } from '../core/lock.js';
import { stagingFolder } from '../core/staging.js';

/** Begins the name of such a file. */
const WAITING = '.waiting-';
/** Ends the run's name in it; stands in no name of a run. */
const END = '+';
const HEARTBEAT_EVERY_MS = 10_000;

/** Says that a run waits, until the returned function is called, which may be called again. Raises RunError when the disk refuses. */
export function noteWaiting(baseExpDir: string, runName: string, world: LockWorld = realLockWorld()): () => void {
  // Several processes may wait for the same: each has a file of its own.
  const lock = takeLock(stagingFolder(baseExpDir, `${WAITING}${runName}${END}`), () => undefined, world);
  const timer = setInterval(() => {
    try {
      lock.heartbeat();
    } catch {
      // A disk that refuses is asked again with the next beat: what waits has runs of its own under way.
    }
  }, HEARTBEAT_EVERY_MS);
  timer.unref();
  return () => {
    clearInterval(timer);
    lock.release();
  };
}

/** The runs of a folder that wait for others, by name; those whose processes are gone do not. */
export function waitingRuns(baseExpDir: string, world: LockWorld = realLockWorld()): string[] {
  const names = existsSync(baseExpDir) ? readdirSync(baseExpDir) : [];
  const waiting = names.flatMap((name) => {
    const end = name.indexOf(END);
    if (!name.startsWith(WAITING) || end < 0 || name.endsWith('.tmp')) return [];
    const owner = readLockFile(join(baseExpDir, name), world)?.owner ?? null;
    return owner === null || standingOf(owner, world) === 'gone' ? [] : [name.slice(WAITING.length, end)];
  });
  return [...new Set(waiting)].sort();
}
