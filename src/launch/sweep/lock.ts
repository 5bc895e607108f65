/** One scheduler at a time for an experiment: two would share out the same devices twice. */
import { RunError } from '../../core/errors.js';
import { acquireLock, lockProblem, readLock, realLockWorld } from '../../run/lock.js';
import { isRunName, RunPaths } from '../../run/paths.js';
import { liveLock } from '../../run/status.js';

const HEARTBEAT_EVERY_MS = 10_000;

const SUFFIX = '.sweep';

/** The folder beside the runs that holds the scheduler's lock; it is not a run. */
function lockPaths(baseExpDir: string, experiment: string): RunPaths {
  return new RunPaths(baseExpDir, `${experiment}${SUFFIX}`);
}

/** Those experiments, by the names that lie in a folder of runs, which a living scheduler holds. */
export function liveExperiments(baseExpDir: string, names: readonly string[]): string[] {
  const experiments = names.filter((name) => name.endsWith(SUFFIX)).map((name) => name.slice(0, -SUFFIX.length));
  return experiments.filter((name) => isRunName(name) && liveLock(lockPaths(baseExpDir, name)) !== null);
}

/**
 * Holds the experiment for this process until the returned function is called. A dead holder's lock is taken over. Raises
 * RunError naming the holder when another scheduler lives, or when the disk refuses.
 */
export function lockExperiment(baseExpDir: string, experiment: string, onLost: (error: unknown) => void): () => void {
  const paths = lockPaths(baseExpDir, experiment);
  const held = readLock(paths);
  const problem = held === null ? null : lockProblem(held, realLockWorld());
  if (problem !== null) {
    throw new RunError(`${experiment} is being swept already, by ${problem.holder}`, {
      where: paths.lock,
      next: 'Follow it with `editrl status`; once it has ended, the same command goes on where it stopped.',
    });
  }
  const lock = acquireLock(paths);
  const timer = setInterval(() => {
    try {
      lock.heartbeat();
    } catch (error) {
      clearInterval(timer);
      onLost(error);
    }
  }, HEARTBEAT_EVERY_MS);
  timer.unref();
  return () => {
    clearInterval(timer);
    lock.release();
  };
}
