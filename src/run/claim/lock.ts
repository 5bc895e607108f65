/** The lock of a run, which only one process can own: `core/lock.ts` with messages about runs. */
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

/** The lock of a run, which this process owns until `release`. */
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

  /** Records a heartbeat. Raises RunError if another process took the run over. */
  heartbeat(): void {
    if (this.lock.isHeld && !this.lock.heartbeat()) throw this.#lost();
  }

  /** Sends heartbeats until the release. Calls `onLost` once if another process took the run over or the lock is gone. */
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
      return new RunError(`this process no longer owns the run: ${gone} was removed`, {
        where: this.path,
        next: 'Find out who removed it. Then repeat the command, which continues from the remaining checkpoints or starts from scratch.',
      });
    }
    const by = `process ${current.pid} on ${current.host}`;
    return new RunError(`this process no longer owns the run; the owner is ${by}`, {
      where: this.path,
      next: 'Another process took the run over while this one was not responding. Let the new owner continue.',
    });
  }

  /** Releases the run. Does nothing if this process no longer owns it. */
  release(): void {
    this.lock.release();
  }
}

/** The lock of another process for shared use. This process must not release it. Raises RunError if the lock is gone. */
export function lentLock(paths: RunPaths, owner: LockOwner, world: LockWorld = realLockWorld()): RunLock {
  try {
    return new RunLock(new FileLock(paths.lock, owner, world), world);
  } catch (cause) {
    throw diskError(paths.lock, cause);
  }
}

/** The owner in the run's lock, or null. The owner may be dead, see `lockProblem`. Raises RunError if the lock is unreadable. */
export function readLock(paths: RunPaths, world: LockWorld = realLockWorld()): HeldBy | null {
  return ownerAt(paths.lock, world);
}

function ownerAt(path: string, world: LockWorld): HeldBy | null {
  const found = readLockFile(path, world);
  return found === null ? null : requireOwner(found, path);
}

function requireOwner({ owner }: FoundLock, path: string): HeldBy {
  if (owner !== null) return owner;
  throw new RunError('the lock is unreadable', {
    where: path,
    next: 'Make sure that no process uses this run. Then remove the file.',
  });
}

/** The reason why a lock must not be taken over: its owner is or may be alive. Null if the owner is certainly gone. */
export function lockProblem(held: HeldBy, world: LockWorld): { holder: string; next: string } | null {
  const standing = ownerStatus(held, world);
  if (standing === 'gone') return null;
  const age = `last heartbeat ${formatAge(held.ageS)} ago`;
  const job = held.slurm_job_id === null ? '' : `, Slurm job ${held.slurm_job_id}`;
  const place = held.host === world.host ? `${held.host}, in another container or before a restart` : held.host;
  const next: Readonly<Record<Exclude<OwnerStatus, 'gone'>, string>> = {
    lives: 'Wait until it ends, stop it with `editrl stop`, or choose another run_name.',
    last_seen: `If that process is gone, repeat the command when its heartbeat is older than ${STALE_AFTER_S} s. Otherwise wait, or choose another run_name.`,
    job: `The Slurm job still exists. Wait for it, or cancel it with \`scancel ${held.slurm_job_id}\`.`,
  };
  const holder =
    standing === 'lives'
      ? `process ${held.pid} on this machine (${held.host}${job}; ${age})`
      : `process ${held.pid} on ${place} (${age}${job})`;
  return { holder, next: next[standing] };
}

/** Takes the run's lock, from a dead owner if necessary. Raises RunError with the owner if the run is in use. */
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
