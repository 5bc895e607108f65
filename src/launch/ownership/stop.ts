/** Stops a run from another process: asks its owner to checkpoint and end, or kills it. */
import { setTimeout as sleep } from 'node:timers/promises';
import { InUseError, RunError } from '../../core/errors.js';
import {
  acquireLock,
  formatAge,
  lockProblem,
  readLock,
  realLockWorld,
  seesProcessesOf,
  type HeldBy,
  type LockWorld,
  type RunLock,
} from '../../run/lock.js';
import type { RunPaths } from '../../run/paths.js';
import { readState, writeState } from '../../run/state.js';
import { liveLock, readStatus, type RunStatus } from '../../run/status.js';
import { KILLED, requestStop, stopsByFile } from '../../run/stop_request.js';
import { launcherOf, type LauncherProcess } from '../processes/guardian.js';
import { whyNotHolder, realHolderWorld } from './holder.js';

const POLL_MS = 100;
const PROGRESS_EVERY_MS = 5_000;
/** A run that was killed while its launcher was just restarting it is watched for this long, and killed again. */
const WATCH_AFTER_KILL_MS = 1_500;

/** What stopping needs from its surroundings; tests replace it. */
export interface StopWorld extends LockWorld {
  /** Sends a signal to a process of this machine. Raises as `process.kill` does. */
  send(pid: number, signal: 'SIGTERM' | 'SIGSTOP' | 'SIGKILL'): void;
  /** The launcher that started a process; null if there is none, or it cannot be found out. */
  launcherOf(pid: number): LauncherProcess | null;
  /** Why the process named in a run's lock does not belong to the run; null if it does. */
  whyNotHolder(paths: RunPaths, held: HeldBy): string | null;
}

export function realStopWorld(): StopWorld {
  const world = realLockWorld();
  const holders = realHolderWorld((pid) => world.processStart(pid));
  return {
    ...world,
    send: (pid, signal) => void process.kill(pid, signal),
    launcherOf,
    whyNotHolder: (paths, held) => whyNotHolder(paths, held, holders),
  };
}

export interface StopOptions {
  /** Kills instead of asking: training since the last checkpoint is lost. */
  readonly now: boolean;
  /** Called with what is being waited for. */
  readonly onProgress: (line: string) => void;
  /** Ends the waiting, not the run. */
  readonly stop?: AbortSignal;
}

export interface StopResult {
  readonly run_name: string;
  readonly outcome: 'stopped' | 'killed' | 'not_running' | 'still_stopping';
  readonly status: RunStatus;
}

/**
 * Stops a run and waits until its owner has ended. Raises RunError when the owner is on another host, may not be signalled, or is a process that is
 * not known to belong to the run; a run that nobody holds is `not_running`.
 */
export async function stopRun(
  paths: RunPaths,
  options: StopOptions,
  world: StopWorld = realStopWorld(),
): Promise<StopResult> {
  const result = (outcome: StopResult['outcome']): StopResult => ({
    run_name: paths.runName,
    outcome,
    status: readStatus(paths, world),
  });
  const first = liveLock(paths, world);
  if (first === null) return result('not_running');
  const starter = starterOf(first, world);
  signal(paths, first, options.now, world);
  if (!options.now) {
    const ended = await waitUntilFree(paths, first, options, world);
    if (!ended) return result('still_stopping');
    markInterrupted(paths, world, 'its process ended before it could save a checkpoint');
    return result('stopped');
  }
  for (let held: HeldBy | null = first; held !== null; held = await restartedHolder(paths, starter, world)) {
    if (held !== first) signal(paths, held, true, world);
    if (!(await waitUntilFree(paths, held, options, world))) return result('still_stopping');
  }
  markInterrupted(paths, world, KILLED);
  return result('killed');
}

function signal(paths: RunPaths, held: HeldBy, now: boolean, world: StopWorld): void {
  if (!seesProcessesOf(held, world)) throw heldOnOtherHost(paths, held);
  // Checked right before the signal: a pid that now belongs to another process must not be hit.
  if (lockProblem(held, world) === null) return;
  if (stopsByFile(paths)) return requestStop(paths, now ? 'now' : 'save');
  const doubt = world.whyNotHolder(paths, held);
  if (doubt !== null) throw notItsProcess(paths, held, now, doubt);
  try {
    if (!now) return world.send(held.pid, 'SIGTERM');
    // Stopped, so that what is written here is final: its launcher neither records a failure nor restarts it.
    world.send(held.pid, 'SIGSTOP');
    const state = readState(paths);
    if (state !== null) writeState(paths, { ...state, state: 'interrupted', reason: KILLED });
    world.send(held.pid, 'SIGKILL');
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code === 'ESRCH') return;
    throw new RunError(`process ${held.pid} of run '${paths.runName}' cannot be signalled`, {
      next: 'It belongs to another user: ask them, or stop it as that user.',
      cause,
    });
  }
}

function notItsProcess(paths: RunPaths, { pid }: HeldBy, now: boolean, doubt: string): RunError {
  return new RunError(
    `the lock of run '${paths.runName}' names process ${pid}, which is not known to be the run's: ${doubt}. It was sent no signal`,
    {
      where: paths.lock,
      next: `See what it is with \`ps -fp ${pid}\`. If it is the run's all the same: kill -${now ? 'KILL' : 'TERM'} ${pid}. If not, see who wrote the lock, and remove it.`,
    },
  );
}

function heldOnOtherHost(paths: RunPaths, held: HeldBy): RunError {
  const job = held.slurm_job_id;
  return new RunError(
    `run '${paths.runName}' is held by process ${held.pid} on ${held.host} (last heartbeat ${formatAge(held.ageS)} ago), not on this machine`,
    {
      next:
        job === null
          ? `Stop it there: ssh ${held.host} kill -TERM ${held.pid}`
          : `Stop its Slurm job: scancel --signal=TERM ${job}`,
    },
  );
}

/** Waits until the owner has released the run or is gone; false when told to stop waiting. */
async function waitUntilFree(paths: RunPaths, held: HeldBy, options: StopOptions, world: StopWorld): Promise<boolean> {
  let said = world.nowMs();
  while (readLock(paths, world)?.token === held.token && liveLock(paths, world) !== null) {
    if (options.stop?.aborted === true) return false;
    if (world.nowMs() - said >= PROGRESS_EVERY_MS) {
      said = world.nowMs();
      const { iteration, num_iterations } = readStatus(paths, world);
      options.onProgress(
        options.now && stopsByFile(paths)
          ? `${paths.runName}: process ${held.pid} has not ended it yet; kill -KILL ${held.pid} would, with every other run that it holds`
          : `${paths.runName}: process ${held.pid} is finishing at iteration ${iteration}/${num_iterations}`,
      );
    }
    await sleep(POLL_MS);
  }
  return true;
}

/** The process that may restart a run once its holder is killed: the holder's launcher, or the holder if it is the launcher itself. */
function starterOf(held: HeldBy, world: StopWorld): LauncherProcess {
  return world.launcherOf(held.pid) ?? { pid: held.pid, start: held.process_start ?? '' };
}

/** Who holds the run again for the same launcher; null if nobody does. A run that somebody else starts meanwhile is not the one to kill. */
async function restartedHolder(paths: RunPaths, starter: LauncherProcess, world: StopWorld): Promise<HeldBy | null> {
  const deadline = world.nowMs() + WATCH_AFTER_KILL_MS;
  for (;;) {
    const held = liveLock(paths, world);
    if (held !== null) {
      const { pid, start } = starterOf(held, world);
      return pid === starter.pid && start === starter.start ? held : null;
    }
    if (world.nowMs() >= deadline) return null;
    await sleep(POLL_MS);
  }
}

/** Marks a run as interrupted whose owner could not do so, and removes the lock that it left. */
function markInterrupted(paths: RunPaths, world: StopWorld, reason: string): void {
  const dead = readStatus(paths, world).state === 'dead';
  const left = readLock(paths, world) !== null && liveLock(paths, world) === null;
  if (!dead && !left) return;
  let lock: RunLock;
  try {
    lock = acquireLock(paths, world);
  } catch (error) {
    // Somebody has started it again: the state is now theirs.
    if (error instanceof InUseError) return;
    throw error;
  }
  try {
    const state = readState(paths);
    if (dead && state !== null) writeState(paths, { ...state, state: 'interrupted', reason });
  } finally {
    lock.release();
  }
}
