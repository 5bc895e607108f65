/**
 * Lets only one gateway at a time write a cache or a records file: two that rotate or rewrite the same file would lose each other's lines.
 * `core/lock.ts` with messages about gateways, and with its own heartbeat.
 */
import { ConfigError, RunError } from '../../core/errors.js';
import { diskError } from '../../core/files.js';
import {
  realLockWorld,
  STALE_AFTER_S,
  ownerStatus,
  takeLock,
  type FileLock,
  type FoundLock,
  type LockWorld,
} from '../../core/lock.js';

const signEveryMs = 20_000;

/** Something that only one gateway may use, for messages. */
export interface LockedResource {
  /** Such as `the cache`. */
  readonly name: string;
  /** What each gateway should be given, such as `a folder of its own`. */
  readonly own: string;
  /** Where it lies, and where its lock does. */
  readonly path: string;
  readonly lockPath: string;
}

export interface LockEvents {
  /** Another gateway has taken it over: nothing may be written there any more. */
  readonly onLost: (error: Error) => void;
  /** The heartbeat failed; it is tried again. */
  readonly onError: (error: Error) => void;
}

/**
 * A container that starts again numbers its processes anew, on a host of the same name: there the owner is known by its number and the time
 * at which it started, so that the next gateway need not wait for the silence of the one before.
 */
function gatewayWorld(): LockWorld {
  return { ...realLockWorld(), slurmJobId: null, bootId: null, pidNamespace: null };
}

export class GatewayLock {
  readonly #timer: NodeJS.Timeout;

  private constructor(
    readonly lock: FileLock,
    readonly claimed: LockedResource,
    readonly events: LockEvents,
  ) {
    this.#timer = setInterval(() => this.heartbeat(), signEveryMs).unref();
  }

  /**
   * Takes it, from an owner that is gone if need be; makes the lock's folder where it is missing. Raises ConfigError where another gateway has
   * it, RunError where the disk refuses.
   */
  static take(claimed: LockedResource, events: LockEvents): GatewayLock {
    const world = gatewayWorld();
    const lock = takeLock(claimed.lockPath, (found) => refuseLiveOwner(found, claimed, world), world);
    return new GatewayLock(lock, claimed, events);
  }

  /** Sends a heartbeat, and checks whether this process is still the owner. */
  heartbeat(): void {
    if (!this.lock.isHeld) return;
    const { name, own, path } = this.claimed;
    try {
      if (this.lock.heartbeat()) return;
    } catch (cause) {
      this.events.onError(diskError(this.lock.path, cause));
      return;
    }
    this.release();
    this.events.onLost(
      new RunError(`another gateway has taken ${name} over; this one goes on without writing there`, {
        where: path,
        next: `Give each gateway ${own}.`,
      }),
    );
  }

  /** Releases it; harmless if it is not owned any more. */
  release(): void {
    clearInterval(this.#timer);
    this.lock.release();
  }
}

/** Raises ConfigError when the owner is alive, or may be; an owner that a lock does not name is gone once it has been silent for long. */
function refuseLiveOwner({ owner, ageS }: FoundLock, { name, own, path }: LockedResource, world: LockWorld): void {
  const standing = owner === null ? (ageS > STALE_AFTER_S ? 'gone' : 'last_seen') : ownerStatus(owner, world);
  if (standing === 'gone') return;
  const lives = standing === 'lives';
  const by = owner === null ? 'another gateway' : `process ${owner.pid}${lives ? '' : ` on ${owner.host}`}`;
  throw new ConfigError(`${name} is in use by ${by}`, {
    where: path,
    next: lives
      ? `Give each gateway ${own}, or stop that one.`
      : `Give each gateway ${own}. If that one is gone, start again when it has been silent for ${STALE_AFTER_S} s (it was last seen ${Math.round(ageS)} s ago).`,
  });
}
