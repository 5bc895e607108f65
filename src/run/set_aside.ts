/** Frees a run's name without losing what was done under it. */
import { existsSync, rmSync } from 'node:fs';
import { basename, join } from 'node:path';
import { diskError, renameAside } from '../core/files.js';
import { acquireLock, realLockWorld, type LockWorld } from './lock.js';
import type { RunPaths } from './paths.js';

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
