/**
 * One gateway at a time has a folder: two that write one file anew would lose what the other appended. `core/lock.ts`, in the words of
 * gateways, and with a sign of life of its own.
 */
import { join } from 'node:path';
import { ConfigError, RunError } from '../../core/errors.js';
import { diskError } from '../../core/files.js';
import {
  realLockWorld,
  STALE_AFTER_S,
  standingOf,
  takeLock,
  type FileLock,
  type FoundLock,
  type LockWorld,
} from '../../core/lock.js';

const signEveryMs = 20_000;

export interface LockEvents {
  /** Another gateway has taken the folder over: nothing may be written there any more. */
  readonly onLost: (error: Error) => void;
  /** The owner could not give a sign of life; it tries again. */
  readonly onError: (error: Error) => void;
}

/**
 * A container that starts again numbers its processes anew, on a host of the same name: there the owner is known by its number and the time
 * at which it started, so that the next gateway need not wait for the silence of the one before.
 */
function gatewayWorld(): LockWorld {
  return { ...realLockWorld(), slurmJobId: null, bootId: null, pidNamespace: null };
}

export class FolderLock {
  readonly #timer: NodeJS.Timeout;

  private constructor(
    readonly lock: FileLock,
    readonly events: LockEvents,
  ) {
    this.#timer = setInterval(() => this.giveSign(), signEveryMs).unref();
  }

  /**
   * Takes a folder, from an owner that is gone if need be; makes it where it is missing. Raises ConfigError where another gateway has it,
   * RunError where the disk refuses.
   */
  static take(dir: string, events: LockEvents): FolderLock {
    const world = gatewayWorld();
    return new FolderLock(
      takeLock(join(dir, 'gateway.pid'), (found) => refuseWhatLives(found, dir, world), world),
      events,
    );
  }

  /** Says that the owner lives, and looks whether it still is the owner. */
  giveSign(): void {
    if (!this.lock.isHeld) return;
    const where = this.lock.path;
    try {
      if (this.lock.heartbeat()) return;
    } catch (cause) {
      this.events.onError(diskError(where, cause));
      return;
    }
    this.release();
    this.events.onLost(
      new RunError('another gateway has taken the folder over; this one goes on without writing there', {
        where,
        next: 'Give each gateway a folder of its own.',
      }),
    );
  }

  /** Gives the folder free; harmless when it is not owned any more. */
  release(): void {
    clearInterval(this.#timer);
    this.lock.release();
  }
}

/** Raises ConfigError where the owner lives, or may live; one that a lock does not name is gone once it has been silent for long. */
function refuseWhatLives({ owner, ageS }: FoundLock, dir: string, world: LockWorld): void {
  const standing = owner === null ? (ageS > STALE_AFTER_S ? 'gone' : 'heard_of') : standingOf(owner, world);
  if (standing === 'gone') return;
  const lives = standing === 'lives';
  const name = owner === null ? 'another gateway' : `process ${owner.pid}${lives ? '' : ` on ${owner.host}`}`;
  throw new ConfigError(`the cache is in use by ${name}`, {
    where: dir,
    next: lives
      ? 'Give each gateway a folder of its own, or stop that one.'
      : `Give each gateway a folder of its own. If that one is gone, start again when it has been silent for ${STALE_AFTER_S} s (it was heard of ${Math.round(ageS)} s ago).`,
  });
}
