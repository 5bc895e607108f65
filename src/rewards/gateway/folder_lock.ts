/**
 * One gateway at a time has a folder: two that write one file anew would lose what the other appended. The lock is a file that names its
 * owner; its modification time is the owner's sign of life.
 *
 * A number does not name a process for long: a container gives 1 to the first of its processes after every start. So the owner on this
 * machine is known by its number and the time at which it started, and only an owner elsewhere, or of unknown start, by its sign of life.
 */
import { randomUUID } from 'node:crypto';
import {
  closeSync,
  fstatSync,
  futimesSync,
  linkSync,
  mkdirSync,
  openSync,
  readFileSync,
  renameSync,
  rmSync,
  writeSync,
} from 'node:fs';
import { hostname } from 'node:os';
import { join } from 'node:path';
import { z } from 'zod';
import { ConfigError, RunError } from '../../core/errors.js';
import { diskError } from '../../core/files.js';
import { processStart } from '../../core/process_start.js';

/** An owner elsewhere that gave no sign of life for so many seconds is taken for gone. */
export const silentAfterS = 120;
const signEveryMs = 20_000;
const maxRounds = 20;

const ownerSchema = z.object({
  token: z.string(),
  host: z.string(),
  pid: z.int().min(1),
  /** As `processStart` gives it; '' where it is not known. */
  process_start: z.string(),
});

export interface LockEvents {
  /** Another gateway has taken the folder over: nothing may be written there any more. */
  readonly onLost: (error: Error) => void;
  /** The owner could not give a sign of life; it tries again. */
  readonly onError: (error: Error) => void;
}

interface Held {
  readonly text: string;
  /** Null for a lock that says nothing: its maker was killed, or is about to write. */
  readonly owner: z.output<typeof ownerSchema> | null;
  readonly silentS: number;
}

export class FolderLock {
  #file: number | null;
  readonly #timer: NodeJS.Timeout;

  private constructor(
    readonly path: string,
    file: number,
    /** The content of the file while the folder is this process's. */
    readonly text: string,
    readonly events: LockEvents,
  ) {
    this.#file = file;
    this.#timer = setInterval(() => this.giveSign(), signEveryMs).unref();
  }

  /**
   * Takes a folder, from an owner that is gone if need be; makes it where it is missing. Raises ConfigError where another gateway has it,
   * RunError where the disk refuses.
   */
  static take(dir: string, events: LockEvents): FolderLock {
    const path = join(dir, 'gateway.pid');
    const owner = {
      token: randomUUID(),
      host: hostname(),
      pid: process.pid,
      process_start: processStart(process.pid) ?? '',
    };
    const text = `${JSON.stringify(owner)}\n`;
    try {
      mkdirSync(dir, { recursive: true });
      for (let round = 0; round < maxRounds; round++) {
        const file = create(path, text);
        if (file !== null) return new FolderLock(path, file, text, events);
        const held = read(path);
        if (held === null) continue;
        refuseWhatLives(held, dir);
        removeLeft(path, held);
      }
    } catch (cause) {
      throw cause instanceof ConfigError ? cause : diskError(path, cause);
    }
    throw new RunError('the lock changes hands faster than it can be read', {
      where: path,
      next: 'See which gateways start with this folder, and give each one of its own.',
    });
  }

  /** Says that the owner lives, and looks whether it still is the owner. */
  giveSign(): void {
    if (this.#file === null) return;
    try {
      // By descriptor: the sign of life of another owner is not this one's to give.
      const now = Date.now() / 1000;
      futimesSync(this.#file, now, now);
      if (read(this.path)?.text === this.text) return;
    } catch (cause) {
      this.events.onError(diskError(this.path, cause));
      return;
    }
    this.#stop();
    this.events.onLost(
      new RunError('another gateway has taken the folder over; this one goes on without writing there', {
        where: this.path,
        next: 'Give each gateway a folder of its own.',
      }),
    );
  }

  /** Gives the folder free; harmless when it is not owned any more. */
  release(): void {
    if (this.#file === null) return;
    this.#stop();
    if (read(this.path)?.text === this.text) rmSync(this.path, { force: true });
  }

  #stop(): void {
    clearInterval(this.#timer);
    if (this.#file !== null) closeSync(this.#file);
    this.#file = null;
  }
}

/** Null where there is one already. */
function create(path: string, text: string): number | null {
  let file: number;
  try {
    file = openSync(path, 'wx');
  } catch (cause) {
    if (isCode(cause, 'EEXIST')) return null;
    throw cause;
  }
  try {
    writeSync(file, text);
    return file;
  } catch (cause) {
    closeSync(file);
    rmSync(path, { force: true });
    throw cause;
  }
}

/** Null where there is none. */
function read(path: string): Held | null {
  let file: number;
  try {
    file = openSync(path, 'r');
  } catch (cause) {
    if (isCode(cause, 'ENOENT')) return null;
    throw cause;
  }
  try {
    const text = readFileSync(file, 'utf8');
    return { text, owner: ownerOf(text), silentS: Math.max(0, (Date.now() - fstatSync(file).mtimeMs) / 1000) };
  } finally {
    closeSync(file);
  }
}

function ownerOf(text: string): Held['owner'] {
  try {
    return ownerSchema.safeParse(JSON.parse(text)).data ?? null;
  } catch {
    return null;
  }
}

/** Raises ConfigError where the owner lives, or may live. */
function refuseWhatLives({ owner, silentS }: Held, dir: string): void {
  const here = owner !== null && owner.host === hostname();
  const start = here ? processStart(owner.pid) : '';
  if (start === null) return;
  const known = here && start !== '' && owner.process_start !== '';
  if (known ? start !== owner.process_start : silentS > silentAfterS) return;
  const name = owner === null ? 'another gateway' : `process ${owner.pid}${here ? '' : ` on ${owner.host}`}`;
  throw new ConfigError(`the cache is in use by ${name}`, {
    where: dir,
    next: known
      ? 'Give each gateway a folder of its own, or stop that one.'
      : `Give each gateway a folder of its own. If that one is gone, start again when it has been silent for ${silentAfterS} s (it was heard of ${Math.round(silentS)} s ago).`,
  });
}

/** Removes the lock of an owner that is gone. Whoever is faster has put its own lock in its place, which is put back. */
function removeLeft(path: string, left: Held): void {
  const aside = `${path}.${randomUUID()}`;
  try {
    renameSync(path, aside);
  } catch (cause) {
    if (isCode(cause, 'ENOENT')) return;
    throw cause;
  }
  try {
    if (read(aside)?.text !== left.text) linkSync(aside, path);
  } catch (cause) {
    if (!isCode(cause, 'EEXIST')) throw cause;
  } finally {
    rmSync(aside, { force: true });
  }
}

function isCode(cause: unknown, code: string): boolean {
  return (cause as NodeJS.ErrnoException).code === code;
}
