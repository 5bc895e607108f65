/** Who holds the folder in which a training server that is started with a run keeps what it saves: two servers at one database would take each other's work. */
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
/** Beyond the time after which a silent holder counts as gone. */
const MARGIN_MS = 10_000;

/** It is held, by a process on another machine that may have ended with that machine. */
class HeldElsewhere extends RunError {}

/** Who wants the folder. */
export interface LockUser {
  /** Aborted when it is not wanted any more. */
  readonly over: AbortSignal;
  /** Called with one line: another machine is waited for, or the disk begins to refuse signs of life. */
  readonly notice: (line: string) => void;
  /** Called once when another server has taken the folder over. */
  readonly lost: (error: EndpointError) => void;
}

/**
 * Takes the folder and keeps it until the release of the returned lock. Waits for a holder on another machine as long as that machine may have failed,
 * unless the user is over. Raises RunError naming the holder, or when the disk refuses.
 */
export async function holdServerFolder(
  folder: string,
  user: LockUser,
  world: LockWorld = realLockWorld(),
  clock: Clock = systemClock,
): Promise<FileLock> {
  const end = clock.now() + 1000 * STALE_AFTER_S + MARGIN_MS;
  for (let isTold = false; ; isTold = true) {
    try {
      const lock = takeLock(join(folder, SERVER_LOCK), (found) => refuseHeld(found, folder, world), world);
      lock.keepAlive({
        onLost: () => user.lost(takenOver(folder)),
        onRefused: (cause) => user.notice(diskError(lock.path, cause).toText()),
      });
      return lock;
    } catch (error) {
      if (!(error instanceof HeldElsewhere) || user.over.aborted || clock.now() > end) throw error;
      if (!isTold) user.notice(`${error.message}: waiting until nothing is heard of it for ${STALE_AFTER_S} s`);
      await sleep(clock, LOOK_MS, user.over);
    }
  }
}

function takenOver(folder: string): EndpointError {
  return new EndpointError('another training server has taken over what this one works with', {
    where: folder,
    next: 'Another process took the run over while this one did not answer; let that one go on.',
  });
}

/** Does something that no server may disturb, and holds the folder meanwhile. Raises RunError where a server, here or on another machine, works with it. */
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
  const holder = owner === null ? 'somebody' : `process ${owner.pid} on ${owner.host}`;
  const Held = status === 'last_seen' ? HeldElsewhere : RunError;
  throw new Held(`a training server that ${holder} has started works with what is saved here`, {
    where: folder,
    next: 'Wait until that run has ended, or stop it with `editrl stop`, and run the same command again.',
  });
}
