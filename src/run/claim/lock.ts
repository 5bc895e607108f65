/** Lets only one process at a time own a run: `core/lock.ts` with messages about runs. */
import { existsSync } from 'node:fs';
import { dirname } from 'node:path';
import { InUseError, RunError } from '../../core/errors.js';
import { diskError } from '../../core/files.js';
import {
  readLockFile,
  realLockWorld,
  STALE_AFTER_S,
  ownerStatus,
  takeLock,
  FileLock,
  type FoundLock,
  type HeldBy,
  type LockOwner,
  type LockWorld,
  type OwnerStatus,
} from '../../core/lock.js';
import type { RunPaths } from '../paths.js';

export { homeOf, realLockWorld, seesProcessesOf, STALE_AFTER_S } from '../../core/lock.js';
export type { HeldBy, LockOwner, LockWorld, ProcessHome } from '../../core/lock.js';
export { processStart } from '../../core/process.js';

/** The lock of a run, held by this process until `release`. */
export class RunLock {
  constructor(
    private readonly lock: FileLock,
    private readonly world: LockWorld,
  ) {}

  get path(): string {
    return this.lock.path;
  }

  get owner(): LockOwner {
    return this.lock.owner;
  }

  /** Records that the owner is alive. Raises RunError when another process has taken the run over. */
  heartbeat(): void {
    if (this.lock.isHeld && !this.lock.heartbeat()) throw this.#lost();
  }

  /** Gives signs of life until the release; calls `onLost` once if another process has taken the run over or its lock is gone. */
  keepAlive(onLost: (error: unknown) => void): void {
    this.lock.keepAlive({ onLost: () => onLost(this.#lost()) });
  }

  #lost(): Error {
    let current: HeldBy | null;
    try {
      current = ownerAt(this.path, this.world);
    } catch (unreadable) {
      return unreadable as Error;
    }
    if (current === null) {
      const gone = existsSync(dirname(this.path)) ? 'its lock' : "the run's folder";
      return new RunError(`this process no longer owns the run: ${gone} was removed while it ran`, {
        where: this.path,
        next: 'Find out who removed it. Then run the same command again: it goes on from the checkpoints that are left, or starts from scratch.',
      });
    }
    const by = `process ${current.pid} on ${current.host}`;
    return new RunError(`this process no longer owns the run; its lock is held by ${by}`, {
      where: this.path,
      next: 'Another process took the run over while this one did not answer; let that one go on.',
    });
  }

  /** Releases the run; harmless if it is not owned any more. */
  release(): void {
    this.lock.release();
  }
}

/** The lock that another process took and lends to this one, which must not release it. Raises RunError when it is gone. */
export function lentLock(paths: RunPaths, owner: LockOwner, world: LockWorld = realLockWorld()): RunLock {
  try {
    return new RunLock(new FileLock(paths.lock, owner, world), world);
  } catch (cause) {
    throw diskError(paths.lock, cause);
  }
}

/** Who holds the run's lock, or null. A holder may be dead; `lockProblem` decides. Raises RunError when the lock does not name its holder. */
export function readLock(paths: RunPaths, world: LockWorld = realLockWorld()): HeldBy | null {
  return ownerAt(paths.lock, world);
}

function ownerAt(path: string, world: LockWorld): HeldBy | null {
  const found = readLockFile(path, world);
  return found === null ? null : requireOwner(found, path);
}

function requireOwner({ owner }: FoundLock, path: string): HeldBy {
  if (owner !== null) return owner;
  throw new RunError('the lock is not readable', {
    where: path,
    next: 'Make sure that no process runs this run, then remove the file.',
  });
}

/** Why a lock may not be taken over: its owner is alive, or may be. Null when the owner is certainly gone. */
export function lockProblem(held: HeldBy, world: LockWorld): { holder: string; next: string } | null {
  const standing = ownerStatus(held, world);
  if (standing === 'gone') return null;
  const age = `last heartbeat ${formatAge(held.ageS)} ago`;
  const job = held.slurm_job_id === null ? '' : `, Slurm job ${held.slurm_job_id}`;
  const place = held.host === world.host ? `${held.host}, in another container or before it was restarted` : held.host;
  const next: Readonly<Record<Exclude<OwnerStatus, 'gone'>, string>> = {
    lives: 'Wait until it is done, stop it with `editrl stop`, or choose another run_name.',
    last_seen: `If that process is gone, run the same command again once its heartbeat is older than ${STALE_AFTER_S} s; else wait, or choose another run_name.`,
    job: `Slurm still knows the job: wait for it, or end it with \`scancel ${held.slurm_job_id}\`.`,
  };
  const holder =
    standing === 'lives'
      ? `process ${held.pid} on this machine (${held.host}${job}; ${age})`
      : `process ${held.pid} on ${place} (${age}${job})`;
  return { holder, next: next[standing] };
}

/** Takes the run's lock, from a dead owner if necessary. Raises RunError naming the holder when it is in use. */
export function acquireLock(paths: RunPaths, world: LockWorld = realLockWorld()): RunLock {
  const refuse = (found: FoundLock): void => {
    const problem = lockProblem(requireOwner(found, paths.lock), world);
    if (problem === null) return;
    throw new InUseError(`the run is in use by ${problem.holder}`, { where: paths.lock, next: problem.next });
  };
  return new RunLock(takeLock(paths.lock, refuse, world), world);
}

/** Formats seconds for people. */
export function formatAge(seconds: number): string {
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  return `${Math.round(seconds / 3600)} h`;
}
