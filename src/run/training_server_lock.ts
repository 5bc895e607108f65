/** Who holds the folder in which a training server that is started with a run keeps what it saves: two servers at one database would take each other's work. */
import { join } from 'node:path';
import { RunError } from '../core/errors.js';
import { ownerStatus, realLockWorld, readLockFile, takeLock, type FileLock, type FoundLock } from '../core/lock.js';
import type { LockWorld } from '../core/lock.js';

export const SERVER_LOCK = 'lock.json';

const HEARTBEAT_MS = 10_000;

/** A lock that is kept alive until it is released. */
export class TrainingServerLock {
  readonly #lock: FileLock;
  readonly #beat: NodeJS.Timeout;

  /** Raises RunError naming the holder, or when the disk refuses. */
  constructor(folder: string, world: LockWorld = realLockWorld()) {
    this.#lock = takeLock(join(folder, SERVER_LOCK), (found) => refuseHeld(found, folder, world), world);
    this.#beat = setInterval(() => this.#lock.heartbeat(), HEARTBEAT_MS);
    this.#beat.unref();
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
  if (owner !== null && ownerStatus(owner, world) === 'gone') return;
  const holder = owner === null ? 'somebody' : `process ${owner.pid} on ${owner.host}`;
  throw new RunError(`a training server that ${holder} has started works with what is saved here`, {
    where: folder,
    next: 'Wait until that run has ended, or stop it with `editrl stop`, and run the same command again.',
  });
}
