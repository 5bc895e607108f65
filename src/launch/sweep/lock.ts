/** Allows one scheduler at a time for an experiment, because two would assign the same devices twice. */
import { existsSync, readdirSync } from 'node:fs';
import { RunError } from '../../core/errors.js';
import { lockProblem, readLock, realLockWorld } from '../../run/claim/lock.js';
import { isRunName, RunPaths } from '../../run/paths.js';
import { mayBeHeld } from '../../run/status.js';
import { Ownership } from '../ownership/owner.js';

const SUFFIX = '.sweep';

/** The folder beside the runs that contains the scheduler's lock. It is not a run. */
function lockPaths(baseExpDir: string, experiment: string): RunPaths {
  return new RunPaths(baseExpDir, `${experiment}${SUFFIX}`);
}

/** An experiment with a live scheduler. */
export interface LiveSweep {
  readonly experiment: string;
  /** The folder with the scheduler's lock. */
  readonly paths: RunPaths;
}

/** The experiments in folders whose lock is alive or cannot be read, by name. */
export function liveSweeps(folders: readonly string[]): LiveSweep[] {
  return folders.flatMap((folder) =>
    (existsSync(folder) ? readdirSync(folder) : [])
      .filter((name) => name.endsWith(SUFFIX) && isRunName(name))
      .sort()
      .map((name) => ({ experiment: name.slice(0, -SUFFIX.length), paths: new RunPaths(folder, name) }))
      .filter(({ paths }) => mayBeHeld(paths)),
  );
}

/**
 * Acquires the lock of an experiment, or takes over a dead scheduler's. Raises RunError, with the holder, when another
 * scheduler is alive, or on a disk error.
 */
export function ownExperiment(baseExpDir: string, experiment: string): Ownership {
  const paths = lockPaths(baseExpDir, experiment);
  const held = readLock(paths);
  const problem = held === null ? null : lockProblem(held, realLockWorld());
  if (problem !== null) {
    throw new RunError(`${experiment} is being swept already, by ${problem.holder}`, {
      where: paths.lock,
      next: 'Follow it with `editrl ls`; once it has ended, the same command goes on where it stopped.',
    });
  }
  return Ownership.take(paths);
}
