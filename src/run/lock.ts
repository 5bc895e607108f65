/**
 * One process at a time owns a run. The lock is a file that is made by hard-linking a finished one into place, so that
 * two racers cannot both win and nobody reads half a lock; its modification time is the heartbeat.
 *
 * Taking over a dead owner's lock goes through a file named after that lock's token, made in the same exclusive way:
 * whoever makes it owns the succession, and if that process dies too, its own token names the next file. The owner is
 * therefore the end of the chain, and a process that acts on an outdated view of it finds out before it owns anything.
 */
import { spawnSync } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import {
  closeSync,
  futimesSync,
  linkSync,
  mkdirSync,
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
import { RunError } from '../core/errors.js';
import { diskError } from '../core/files.js';
import { processStart } from '../core/process_start.js';
import type { RunPaths } from './paths.js';

export { processStart };

/** After this many seconds without a heartbeat a lock of another host may be taken over. */
export const STALE_AFTER_S = 120;
const MAX_ROUNDS = 100;

/** Who holds a lock. */
export interface LockOwner {
  readonly token: string;
  readonly host: string;
  readonly pid: number;
  /** Clock ticks since boot at which the process started (Linux), so that a reused pid is told apart; else null. */
  readonly process_start: string | null;
  readonly slurm_job_id: string | null;
  readonly acquired_at: string;
  /** Id of the boot of the machine's kernel (Linux); absent or null where it is not known. */
  readonly boot_id?: string | null;
  /** The namespace that `pid` counts in (Linux), another one in each container; absent or null where it is not known. */
  readonly pid_namespace?: string | null;
}

/** Where a process number counts. */
export type ProcessHome = Pick<LockOwner, 'host' | 'boot_id' | 'pid_namespace'>;

export interface HeldBy extends LockOwner {
  /** Seconds since the last heartbeat. */
  readonly ageS: number;
}

/** What the lock asks of its surroundings; tests put other answers in. */
export interface LockWorld {
  readonly host: string;
  readonly pid: number;
  readonly slurmJobId: string | null;
  /** As in LockOwner. */
  readonly bootId?: string | null;
  readonly pidNamespace?: string | null;
  nowMs(): number;
  /** The start time of a live process on this machine, '' when alive but unknown, null when there is none. */
  processStart(pid: number): string | null;
  /** Whether Slurm says that a job is over; null when Slurm is not here or does not answer. */
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

/** What only Linux has, and not every container shows. */
function orNull(read: () => string): string | null {
  try {
    return read();
  } catch {
    return null;
  }
}

/** Where this process's number counts. */
export function homeOf({ host, bootId = null, pidNamespace = null }: LockWorld): ProcessHome {
  return { host, boot_id: bootId, pid_namespace: pidNamespace };
}

/**
 * Whether the processes of a lock's host are those that this process sees. Hosts of one name are told apart, as far as both
 * are known, by the boot of their kernel and the namespace of their process numbers: containers often share the name.
 */
export function seesProcessesOf(held: ProcessHome, world: LockWorld): boolean {
  const same = (theirs: string | null | undefined, ours: string | null | undefined): boolean =>
    theirs === ours || (theirs ?? null) === null || (ours ?? null) === null;
  return held.host === world.host && same(held.boot_id, world.bootId) && same(held.pid_namespace, world.pidNamespace);
}

function slurmJobEnded(jobId: string): boolean | null {
  const asked = spawnSync('squeue', ['--noheader', '--jobs', jobId, '--format', '%T'], {
    encoding: 'utf8',
    timeout: 10_000,
  });
  if (asked.error !== undefined) return null;
  if (asked.status !== 0) return asked.stderr.includes('Invalid job id') ? true : null;
  return asked.stdout.trim() === '';
}

/** The lock of a run, held by this process until `release`. */
export class RunLock {
  #file: number | null;

  constructor(
    readonly path: string,
    readonly owner: LockOwner,
    private readonly world: LockWorld,
  ) {
    this.#file = openSync(path, 'r+');
  }

  /** Says that the owner lives. Raises RunError when another process has taken the run over. */
  heartbeat(): void {
    if (this.#file === null) return;
    // By descriptor: if the file was replaced, only the abandoned one is touched, never the other owner's.
    const now = this.world.nowMs() / 1000;
    futimesSync(this.#file, now, now);
    const current = readOwner(this.path, this.world);
    if (current?.token !== this.owner.token) {
      const by = current === null ? 'nobody' : `process ${current.pid} on ${current.host}`;
      throw new RunError(`this process no longer owns the run; its lock is held by ${by}`, {
        where: this.path,
        next: 'Another process took the run over while this one did not answer; let that one go on.',
      });
    }
  }

  /** Gives the run free; harmless when it is not owned any more. */
  release(): void {
    if (this.#file === null) return;
    closeSync(this.#file);
    this.#file = null;
    if (readOwner(this.path, this.world)?.token === this.owner.token) rmSync(this.path, { force: true });
  }
}

/** Who holds the run's lock, or null. A holder may be dead: `lockProblem` judges. */
export function readLock(paths: RunPaths, world: LockWorld = realLockWorld()): HeldBy | null {
  return readOwner(paths.lock, world);
}

/** Why a lock may not be taken over: its owner lives, or may live. Null when the owner is certainly gone. */
export function lockProblem(held: HeldBy, world: LockWorld): { holder: string; next: string } | null {
  const age = `last heartbeat ${formatAge(held.ageS)} ago`;
  const job = held.slurm_job_id === null ? '' : `, Slurm job ${held.slurm_job_id}`;
  if (seesProcessesOf(held, world)) {
    const start = world.processStart(held.pid);
    if (start === null) return null;
    const reused = start !== '' && held.process_start !== null && start !== held.process_start;
    if (reused) return null;
    return {
      holder: `process ${held.pid} on this machine (${held.host}${job}; ${age})`,
      next: 'Wait until it is done, stop it with `editrl stop`, or choose another run_name.',
    };
  }
  const place = held.host === world.host ? `${held.host}, in another container or before it was restarted` : held.host;
  const holder = `process ${held.pid} on ${place} (${age}${job})`;
  if (held.ageS <= STALE_AFTER_S) {
    return {
      holder,
      next: `If that process is gone, run the same command again once its heartbeat is older than ${STALE_AFTER_S} s; else wait, or choose another run_name.`,
    };
  }
  // Slurm runs one attempt of a job at a time: what a requeued job finds of itself on another host is over.
  const ownEarlierAttempt = held.slurm_job_id !== null && held.slurm_job_id === world.slurmJobId;
  if (held.slurm_job_id !== null && !ownEarlierAttempt && world.slurmJobEnded(held.slurm_job_id) === false) {
    return { holder, next: `Slurm still knows the job: wait for it, or end it with \`scancel ${held.slurm_job_id}\`.` };
  }
  return null;
}

/** Takes the run's lock, from a dead owner if need be. Raises RunError naming the holder when it is in use. */
export function acquireLock(paths: RunPaths, world: LockWorld = realLockWorld()): RunLock {
  const owner: LockOwner = {
    token: randomUUID(),
    ...homeOf(world),
    pid: world.pid,
    process_start: world.processStart(world.pid),
    slurm_job_id: world.slurmJobId,
    acquired_at: new Date(world.nowMs()).toISOString(),
  };
  const own = `${paths.lock}.${owner.token}.tmp`;
  try {
    mkdirSync(dirname(paths.lock), { recursive: true });
    writeFileSync(own, `${JSON.stringify(owner, null, 2)}\n`);
  } catch (cause) {
    rmSync(own, { force: true });
    throw diskError(own, cause);
  }
  try {
    for (let round = 0; round < MAX_ROUNDS; round++) {
      if (claimEndOfChain(paths.lock, own, world)) return new RunLock(paths.lock, owner, world);
    }
    throw new RunError('the lock changes hands faster than it can be read', {
      where: paths.lock,
      next: 'See which processes start this run, and run the same command again.',
    });
  } finally {
    rmSync(own, { force: true });
  }
}

/** One walk along the chain; false when it changed meanwhile and the walk has to begin again. */
function claimEndOfChain(lock: string, own: string, world: LockWorld): boolean {
  const walked: { path: string; token: string }[] = [];
  let path = lock;
  while (!tryLink(own, path)) {
    const held = readOwner(path, world);
    if (held === null) return false;
    const problem = lockProblem(held, world);
    if (problem !== null) {
      throw new RunError(`the run is in use by ${problem.holder}`, { where: lock, next: problem.next });
    }
    walked.push({ path, token: held.token });
    path = successor(lock, held.token);
  }
  if (walked.length === 0) return true;
  const unchanged = walked.every((link) => readOwner(link.path, world)?.token === link.token);
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
    if ((cause as NodeJS.ErrnoException).code === 'EEXIST') return false;
    throw diskError(path, cause);
  }
}

function readOwner(path: string, world: LockWorld): HeldBy | null {
  let text: string;
  let modified: number;
  try {
    text = readFileSync(path, 'utf8');
    modified = statSync(path).mtimeMs;
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code === 'ENOENT') return null;
    throw new RunError('cannot read the lock', { where: path, cause });
  }
  try {
    const owner = JSON.parse(text) as LockOwner;
    if (typeof owner.token !== 'string' || typeof owner.host !== 'string' || typeof owner.pid !== 'number') {
      throw new Error('fields are missing');
    }
    return { ...owner, ageS: Math.max(0, (world.nowMs() - modified) / 1000) };
  } catch (cause) {
    throw new RunError('the lock is not readable', {
      where: path,
      next: 'Make sure that no process runs this run, then remove the file.',
      cause,
    });
  }
}

/** Seconds as a person says them. */
export function formatAge(seconds: number): string {
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  return `${Math.round(seconds / 3600)} h`;
}
