/**
 * A lock file makes one process at a time the owner of something. The file is hard-linked into place when it is complete (or copied
 * exclusively, on file systems without links), so two racers cannot both win and no one reads half a lock. Its modification time is the
 * heartbeat.
 * A dead owner's lock is taken over through a file named after that lock's token, created in the same exclusive way. Its creator owns the
 * succession. If that process dies too, its own token names the next file. So the owner is the end of the chain, and a process with an
 * outdated view finds out before it owns anything.
 */
import { spawnSync } from 'node:child_process';
import { createHash, randomUUID } from 'node:crypto';
import {
  closeSync,
  constants,
  copyFileSync,
  futimesSync,
  linkSync,
  openSync,
  readFileSync,
  readlinkSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { hostname } from 'node:os';
import { dirname } from 'node:path';
import { RunError } from './errors.js';
import { diskError, makeFolder } from './files.js';
import { MEBIBYTE, readPlainText } from './plain_file.js';
import { processStart } from './process.js';

/** A lock of another host without a heartbeat for this many seconds may be taken over. */
export const STALE_AFTER_S = 120;
const HEARTBEAT_INTERVAL_MS = 10_000;
const MAX_ROUNDS = 100;

/** The holder of a lock. */
export interface LockOwner {
  readonly token: string;
  readonly host: string;
  readonly pid: number;
  /** Clock ticks since boot at which the process started (Linux), which distinguishes a reused pid. Else null. */
  readonly process_start: string | null;
  readonly slurm_job_id: string | null;
  readonly acquired_at: string;
  /** Id of the kernel's boot (Linux). Absent or null if unknown. */
  readonly boot_id?: string | null;
  /** The namespace of `pid` (Linux), which differs between containers. Absent or null if unknown. */
  readonly pid_namespace?: string | null;
}

/** Identifies the set of process numbers that a pid belongs to. */
export type ProcessHome = Pick<LockOwner, 'host' | 'boot_id' | 'pid_namespace'>;

export interface HeldBy extends LockOwner {
  /** Seconds since the last heartbeat. */
  readonly ageS: number;
}

/** An existing lock file. */
export interface FoundLock {
  /** The owner's token. For a file without an owner, a digest of its text. */
  readonly token: string;
  /** Seconds since the last heartbeat. */
  readonly ageS: number;
  /** Null if the file names none. */
  readonly owner: HeldBy | null;
}

/**
 * The state of an owner. `gone`: certainly ended. `lives`: its process runs on this machine. `last_seen`: on another machine, with a recent
 * heartbeat. `job`: on another machine, silent, and Slurm still knows its job.
 */
export type OwnerStatus = 'gone' | 'lives' | 'last_seen' | 'job';

/** The lock's view of the system. Tests replace it. */
export interface LockWorld {
  readonly host: string;
  readonly pid: number;
  readonly slurmJobId: string | null;
  /** See LockOwner. */
  readonly bootId?: string | null;
  readonly pidNamespace?: string | null;
  nowMs(): number;
  /** The start time of a live process on this machine. '' if it is alive but the time is unknown, null if there is none. */
  processStart(pid: number): string | null;
  /** Whether a Slurm job has ended. Null if Slurm is missing or does not answer. */
  slurmJobEnded(jobId: string): boolean | null;
}

export function realLockWorld(): LockWorld {
  return {
    host: hostname(),
    pid: process.pid,
    slurmJobId: process.env['SLURM_JOB_ID'] ?? null,
    bootId: orNull(() => readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim()),
    pidNamespace: orNull(() => readlinkSync('/proc/self/ns/pid')),
    nowMs: () => Date.now(),
    processStart,
    slurmJobEnded,
  };
}

/** Only Linux has these facts, and not every container shows them. */
function orNull(read: () => string): string | null {
  try {
    return read();
  } catch {
    return null;
  }
}

/** The scope in which this process's id is unique. */
export function homeOf({ host, bootId = null, pidNamespace = null }: LockWorld): ProcessHome {
  return { host, boot_id: bootId, pid_namespace: pidNamespace };
}

/**
 * Whether this process sees the processes of a lock's host. Hosts of one name are distinguished by kernel boot and process namespace, as
 * far as both are known, because containers often share the name.
 */
export function seesProcessesOf(held: ProcessHome, world: LockWorld): boolean {
  const same = (theirs: string | null | undefined, ours: string | null | undefined): boolean =>
    theirs === ours || (theirs ?? null) === null || (ours ?? null) === null;
  return held.host === world.host && same(held.boot_id, world.bootId) && same(held.pid_namespace, world.pidNamespace);
}

function slurmJobEnded(jobId: string): boolean | null {
  const squeue = spawnSync('squeue', ['--noheader', '--jobs', jobId, '--format', '%T'], {
    encoding: 'utf8',
    timeout: 10_000,
  });
  if (squeue.error !== undefined) return null;
  if (squeue.status !== 0) return squeue.stderr.includes('Invalid job id') ? true : null;
  return squeue.stdout.trim() === '';
}

export interface KeepAliveOptions {
  readonly onLost: () => void;
  readonly onRefused?: (error: unknown) => void;
  readonly everyMs?: number;
}

/** A lock file that this process owns until `release`. */
export class FileLock {
  #file: number | null;
  #beat: NodeJS.Timeout | undefined;

  constructor(
    readonly path: string,
    readonly owner: LockOwner,
    private readonly world: LockWorld,
  ) {
    this.#file = openSync(path, 'r+');
  }

  /** Records a heartbeat, and returns whether this process still is the owner. False after `release`. */
  heartbeat(): boolean {
    if (this.#file === null) return false;
    // By descriptor: if the file was replaced, this touches only the abandoned file.
    const now = this.world.nowMs() / 1000;
    futimesSync(this.#file, now, now);
    return readLockFile(this.path, this.world)?.token === this.owner.token;
  }

  /**
   * Sends heartbeats until the lock is released. If the disk refuses one, the next one tries again, and `onRefused` gets the first error in
   * a row. Calls `onLost` once if another process has taken the lock or the file is gone.
   */
  keepAlive({ onLost, onRefused = () => {}, everyMs = HEARTBEAT_INTERVAL_MS }: KeepAliveOptions): void {
    let isRefused = false;
    const beat = (): void => {
      try {
        const isOurs = this.heartbeat();
        isRefused = false;
        if (isOurs) return;
      } catch (error) {
        if (!isRefused) onRefused(error);
        isRefused = true;
        return;
      }
      clearInterval(this.#beat);
      onLost();
    };
    clearInterval(this.#beat);
    this.#beat = setInterval(beat, everyMs).unref();
  }

  /** Releases the lock. Harmless if this process no longer owns it. */
  release(): void {
    clearInterval(this.#beat);
    if (this.#file === null) return;
    closeSync(this.#file);
    this.#file = null;
    if (readLockFile(this.path, this.world)?.token === this.owner.token) rmSync(this.path, { force: true });
  }

  get isHeld(): boolean {
    return this.#file !== null;
  }
}

export function ownerStatus(held: HeldBy, world: LockWorld): OwnerStatus {
  if (seesProcessesOf(held, world)) {
    const start = world.processStart(held.pid);
    if (start === null) return 'gone';
    const isKnown = start !== '' && held.process_start !== null && held.process_start !== '';
    return isKnown && start !== held.process_start ? 'gone' : 'lives';
  }
  if (held.ageS <= STALE_AFTER_S) return 'last_seen';
  // Slurm runs one attempt of a job at a time, so an earlier attempt of this job on another host has ended.
  const ownEarlierAttempt = held.slurm_job_id !== null && held.slurm_job_id === world.slurmJobId;
  const isKnownToSlurm =
    held.slurm_job_id !== null && !ownEarlierAttempt && world.slurmJobEnded(held.slurm_job_id) === false;
  return isKnownToSlurm ? 'job' : 'gone';
}

/**
 * Takes a lock, if need be from an owner that is gone. `refuse` raises if a found lock may not be taken over. Raises RunError if the disk
 * refuses.
 */
export function takeLock(path: string, refuse: (found: FoundLock) => void, world: LockWorld): FileLock {
  const owner: LockOwner = {
    token: randomUUID(),
    ...homeOf(world),
    pid: world.pid,
    process_start: world.processStart(world.pid),
    slurm_job_id: world.slurmJobId,
    acquired_at: new Date(world.nowMs()).toISOString(),
  };
  const own = `${path}.${owner.token}.tmp`;
  try {
    makeFolder(dirname(path));
    writeFileSync(own, `${JSON.stringify(owner, null, 2)}\n`);
  } catch (cause) {
    rmSync(own, { force: true });
    throw diskError(own, cause);
  }
  try {
    for (let round = 0; round < MAX_ROUNDS; round++) {
      if (claimEndOfChain(path, own, refuse, world)) return new FileLock(path, owner, world);
    }
    throw new RunError('the lock changes owners faster than it can be read', {
      where: path,
      next: 'Check which processes use it, then run the same command again.',
    });
  } finally {
    rmSync(own, { force: true });
  }
}

/** Walks the chain once. Returns false if it changed meanwhile and the walk must start again. */
function claimEndOfChain(lock: string, own: string, refuse: (found: FoundLock) => void, world: LockWorld): boolean {
  const walked: { path: string; token: string }[] = [];
  let path = lock;
  while (!tryLink(own, path)) {
    const found = readLockFile(path, world);
    if (found === null) return false;
    refuse(found);
    walked.push({ path, token: found.token });
    path = successor(lock, found.token);
  }
  if (walked.length === 0) return true;
  const unchanged = walked.every((link) => readLockFile(link.path, world)?.token === link.token);
  if (!unchanged) {
    rmSync(path, { force: true });
    return false;
  }
  renameSync(own, lock);
  for (const link of walked) rmSync(successor(lock, link.token), { force: true });
  return true;
}

function successor(lock: string, token: string): string {
  return `${lock}.after.${token}`;
}

function tryLink(own: string, path: string): boolean {
  try {
    linkSync(own, path);
    return true;
  } catch (cause) {
    const { code = '' } = cause as NodeJS.ErrnoException;
    if (code === 'EEXIST') return false;
    if (withoutLinks.has(code)) return tryCopy(own, path);
    throw diskError(path, cause);
  }
}

/** Error codes of file systems without hard links. */
const withoutLinks: ReadonlySet<string> = new Set(['EPERM', 'ENOTSUP', 'EOPNOTSUPP', 'ENOSYS', 'EMLINK']);

/** Copies exclusively, like a link. A reader of the unfinished copy sees a lock without an owner, which it must not take. */
function tryCopy(own: string, path: string): boolean {
  try {
    copyFileSync(own, path, constants.COPYFILE_EXCL);
    return true;
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code === 'EEXIST') return false;
    throw diskError(path, cause);
  }
}

const MAX_LOCK_BYTES = MEBIBYTE;

/** The lock file at a path. Null if there is none. Raises RunError for anything but a plain file. */
export function readLockFile(path: string, world: LockWorld): FoundLock | null {
  const text = readPlainText(path, MAX_LOCK_BYTES);
  const modified = text === null ? undefined : statSync(path, { throwIfNoEntry: false })?.mtimeMs;
  if (text === null || modified === undefined) return null;
  const ageS = Math.max(0, (world.nowMs() - modified) / 1000);
  const owner = ownerOf(text);
  return owner === null
    ? { token: `unreadable-${createHash('sha256').update(text).digest('hex')}`, ageS, owner }
    : { token: owner.token, ageS, owner: { ...owner, ageS } };
}

function ownerOf(text: string): LockOwner | null {
  try {
    const owner = JSON.parse(text) as Partial<LockOwner>;
    const { token, host, pid, process_start = null, slurm_job_id = null, acquired_at = '' } = owner;
    if (typeof token !== 'string' || typeof host !== 'string' || typeof pid !== 'number') return null;
    return { ...owner, token, host, pid, process_start, slurm_job_id, acquired_at };
  } catch {
    return null;
  }
}
