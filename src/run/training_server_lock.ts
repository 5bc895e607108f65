/** Who holds the folder in which a training server that is started with a run keeps what it saves: two servers at one database would take each other's work. */
import { join } from 'node:path';
import { sleep, systemClock, type Clock } from '../core/clock.js';
import { RunError } from '../core/errors.js';
import {
  ownerStatus,
  readLockFile,
  realLockWorld,
  STALE_AFTER_S,
  takeLock,
  type FileLock,
  type FoundLock,
  type LockWorld,
} from '../core/lock.js';

export const SERVER_LOCK = 'lock.json';

const HEARTBEAT_MS = 10_000;
const LOOK_MS = 1000;

/** It is held, by a process on another machine that may have ended with that machine. */
class HeldElsewhere extends RunError {}

/** A lock that is kept alive until it is released. */
export class TrainingServerLock {
  readonly #lock: FileLock;
  readonly #beat: NodeJS.Timeout;

  private constructor(folder: string, world: LockWorld) {
    this.#lock = takeLock(join(folder, SERVER_LOCK), (found) => refuseHeld(found, folder, world), world);
    this.#beat = setInterval(() => this.#lock.heartbeat(), HEARTBEAT_MS);
    this.#beat.unref();
  }

  /**
   * Waits for a holder on another machine as long as that may be one whose machine has failed, unless `over`. Raises RunError naming the holder, or when
   * the disk refuses.
   */
  static async take(
    folder: string,
    over: AbortSignal,
    world: LockWorld = realLockWorld(),
    clock: Clock = systemClock,
  ): Promise<TrainingServerLock> {
    const end = clock.now() + 1000 * STALE_AFTER_S + HEARTBEAT_MS;
    for (;;) {
      try {
        return new TrainingServerLock(folder, world);
      } catch (error) {
        if (!(error instanceof HeldElsewhere) || over.aborted || clock.now() > end) throw error;
        await sleep(clock, LOOK_MS, over);
      }
    }
  }

  release(): void {
    clearInterval(this.#beat);
    this.#lock.release();
  }
}

/** Raises RunError where a server, here or on another machine, works with the folder. */
export function requireServerEnded(folder: string, world: LockWorld = realLockWorld()): void {
  const found = readLockFile(join(folder, SERVER_LOCK), world);
  if (found !== null) refuseHeld(found, folder, world);
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
