/** A requeued job can be back before the lock that it left on another host counts as stale: it waits, instead of failing. */
import { lockProblem, readLock, STALE_AFTER_S, type LockWorld } from '../../run/lock.js';
import type { RunPaths } from '../../run/paths.js';

export interface LeftLockOptions {
  readonly sleep: (seconds: number) => Promise<void>;
  readonly say: (line: string) => void;
}

/**
 * Returns when a run's lock is free, may be taken over, or is held by somebody who may live; claiming then says the rest. Waits
 * only for an earlier attempt of this very job, which may still be ending, and for a lock that an ended job left on another
 * host: two minutes at most, until its heartbeat is stale.
 */
export async function waitForLeftLock(paths: RunPaths, world: LockWorld, options: LeftLockOptions): Promise<void> {
  const deadline = world.nowMs() + (STALE_AFTER_S + 1) * 1000;
  for (let said = false; world.nowMs() <= deadline; said = true) {
    const held = readLock(paths, world);
    if (held === null || lockProblem(held, world) === null) return;
    const { slurm_job_id: job, host, ageS } = held;
    if (job === null) return;
    const ownEarlierAttempt = job === world.slurmJobId;
    if (!ownEarlierAttempt && (host === world.host || world.slurmJobEnded(job) !== true)) return;
    if (!said) options.say(`job ${job} left its lock on ${host}: waiting until its process is gone for certain`);
    await options.sleep(host === world.host ? 1 : Math.min(10, Math.max(1, STALE_AFTER_S - ageS + 1)));
  }
}
