/** The lock of the state folder of a run's own training server. Two servers on one database would conflict. */
import { join } from 'node:path';
import { sleep, systemClock, type Clock } from '../../core/clock.js';
import { EndpointError, RunError } from '../../core/errors.js';
import { diskError } from '../../core/files.js';
import {
  ownerStatus,
  realLockWorld,
  STALE_AFTER_S,
  takeLock,
  type FileLock,
  type FoundLock,
  type LockWorld,
} from '../../core/lock.js';

export const SERVER_LOCK = 'lock.json';

const LOOK_MS = 1000;
/** Longer than the time after which a silent owner counts as gone. */
const MARGIN_MS = 10_000;

/** The lock belongs to a process on another machine, which may have crashed. */
class HeldElsewhere extends RunError {}

/** The process that requests the folder. */
export interface LockUser {
  /** Aborted when the folder is no longer needed. */
  readonly over: AbortSignal;
  /** Called with one line while waiting for another machine, or after a disk error in a heartbeat. */
  readonly notice: (line: string) => void;
  /** Called once if another server takes the folder over. */
  readonly lost: (error: EndpointError) => void;
}

/**
 * Locks the folder until the returned lock is released. Waits for an owner on another machine while that machine may have crashed, unless the user's
 * signal is aborted. Raises RunError with the owner, or for a disk error.
 */
export async function holdServerFolder(
  folder: string,
  user: LockUser,
  world: LockWorld = realLockWorld(),
  clock: Clock = systemClock,
): Promise<FileLock> {
  const end = clock.now() + 1000 * STALE_AFTER_S + MARGIN_MS;
  for (let isReported = false; ; isReported = true) {
    try {
      const lock = takeLock(join(folder, SERVER_LOCK), (found) => refuseHeld(found, folder, world), world);
      lock.keepAlive({
        onLost: () => user.lost(takenOver(folder)),
        onRefused: (cause) => user.notice(diskError(lock.path, cause).toText()),
      });
      return lock;
    } catch (error) {
      if (!(error instanceof HeldElsewhere) || user.over.aborted || clock.now() > end) throw error;
      if (!isReported) user.notice(`${error.message}: waiting until its heartbeat is older than ${STALE_AFTER_S} s`);
      await sleep(clock, LOOK_MS, user.over);
    }
  }
}

function takenOver(folder: string): EndpointError {
  return new EndpointError('another training server took over the state folder of this one', {
    where: folder,
    next: 'Another process took the run over while this one was not responding. Let the new owner continue.',
  });
}

/** Runs a function while no server can use the folder. Raises RunError if a server uses it, here or on another machine. */
export function withServerEnded<T>(folder: string, work: () => T, world: LockWorld = realLockWorld()): T {
  const lock = takeLock(join(folder, SERVER_LOCK), (found) => refuseHeld(found, folder, world), world);
  try {
    return work();
  } finally {
    lock.release();
  }
}

function refuseHeld({ owner }: FoundLock, folder: string, world: LockWorld): void {
  const status = owner === null ? 'lives' : ownerStatus(owner, world);
  if (status === 'gone') return;
  const holder = owner === null ? 'another process' : `process ${owner.pid} on ${owner.host}`;
  const Held = status === 'last_seen' ? HeldElsewhere : RunError;
  throw new Held(`the training server of ${holder} uses this folder`, {
    where: folder,
    next: 'Wait until that run ends, or stop it with `editrl stop`. Then repeat the command.',
  });
}
