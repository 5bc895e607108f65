/**
 * Stops a run or a sweep from another process: writes a stop request for its owner and waits until the run has ended.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { InUseError } from '../../core/errors.js';
import {
  acquireLock,
  readLock,
  realLockWorld,
  type HeldBy,
  type LockWorld,
  type RunLock,
} from '../../run/claim/lock.js';
import type { RunPaths } from '../../run/paths.js';
import { readState, writeState } from '../../run/state.js';
import { liveLock, readStatus, type RunStatus } from '../../run/status.js';
import { KILLED, requestStop } from '../../run/claim/stop_request.js';

const POLL_MS = 100;
const PROGRESS_INTERVAL_MS = 5_000;

export interface StopOptions {
  /** Kill the workers instead of letting them save a checkpoint. Training since the last checkpoint is lost. */
  readonly now: boolean;
  /** Receives one line at intervals about the process that it waits for. */
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
 * Stops a run and waits until its owner has ended it, on any machine. Returns `not_running` for a run without a live
 * owner.
 * Raises RunError when the lock cannot be read or the disk refuses.
 */
export async function stopRun(
  paths: RunPaths,
  options: StopOptions,
  world: LockWorld = realLockWorld(),
): Promise<StopResult> {
  const { now } = options;
  const result = (outcome: StopResult['outcome']): StopResult => ({
    run_name: paths.runName,
    outcome,
    status: readStatus(paths, world),
  });
  const held = liveLock(paths, world);
  if (held === null) return result('not_running');
  requestStop(paths, now ? 'now' : 'save');
  if (!(await waitUntilFree(paths, held, options, world))) return result('still_stopping');
  markInterrupted(paths, world, now ? KILLED : 'its process ended before it could save a checkpoint');
  return result(now ? 'killed' : 'stopped');
}

/** Waits until the owner has released the run or has died. Returns false if `options.stop` aborts first. */
async function waitUntilFree(paths: RunPaths, held: HeldBy, options: StopOptions, world: LockWorld): Promise<boolean> {
  let lastLineMs = world.nowMs();
  while (readLock(paths, world)?.token === held.token && liveLock(paths, world) !== null) {
    if (options.stop?.aborted === true) return false;
    if (world.nowMs() - lastLineMs >= PROGRESS_INTERVAL_MS) {
      lastLineMs = world.nowMs();
      const { iteration, num_iterations } = readStatus(paths, world);
      const { pid, host } = held;
      const there = host === world.host ? '' : ` on ${host}`;
      options.onProgress(
        options.now
          ? `${paths.runName}: process ${pid}${there} has not ended it yet; kill -KILL ${pid} would, with every other run that it holds`
          : `${paths.runName}: process ${pid}${there} is finishing at iteration ${iteration}/${num_iterations}`,
      );
    }
    await sleep(POLL_MS);
  }
  return true;
}

/** Marks a run as interrupted if its owner died before doing so, and removes the stale lock. */
function markInterrupted(paths: RunPaths, world: LockWorld, reason: string): void {
  const dead = readStatus(paths, world).state === 'dead';
  const left = readLock(paths, world) !== null && liveLock(paths, world) === null;
  if (!dead && !left) return;
  let lock: RunLock;
  try {
    lock = acquireLock(paths, world);
  } catch (error) {
    // Another process has started the run again and now owns its state.
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
