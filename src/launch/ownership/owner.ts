/**
 * This process as the owner of a run, or of an experiment that it sweeps: from its lock to its end, over all attempts. It watches for the file that asks
 * for the end, because one process may own several runs, and a signal would end them all.
 */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { EditrlError, RunError } from '../../core/errors.js';
import {
  acquireLock,
  homeOf,
  realLockWorld,
  seesProcessesOf,
  type ProcessHome,
  type RunLock,
} from '../../run/claim/lock.js';
import type { RunPaths } from '../../run/paths.js';
import { readJson, readState, writeState, type RunStateName } from '../../run/state.js';
import { clearStopRequest, KILLED, readStopRequest } from '../../run/claim/stop_request.js';
import { diskError } from '../../core/files.js';
import { endGroup, endMarked } from '../processes/child.js';
import { markedProcesses } from '../processes/guardian.js';
import type { Started } from '../processes/supervise.js';

/** Milliseconds between checks for the file that asks for the end. */
const STOP_INTERVAL_MS = 200;

/** Why a run that was asked to stop is interrupted. */
export const STOPPED = 'stopped on request';

export class Ownership {
  readonly #stop = new AbortController();
  readonly #kill = new AbortController();
  readonly #lost = new AbortController();
  readonly #timer: NodeJS.Timeout;

  private constructor(
    readonly paths: RunPaths,
    readonly lock: RunLock,
  ) {
    // A request is only for the owner to which it was made.
    clearStopRequest(paths);
    lock.keepAlive((error) => this.#lost.abort(error));
    this.#timer = setInterval(() => this.#look(), STOP_INTERVAL_MS).unref();
  }

  /** Takes a folder's lock. Raises InUseError when another process has it, RunError when the disk refuses. */
  static take(paths: RunPaths): Ownership {
    return new Ownership(paths, acquireLock(paths));
  }

  /** Aborted when somebody asks for a checkpoint and the end. */
  get stop(): AbortSignal {
    return this.#stop.signal;
  }

  /** Aborted when somebody asks for the end at once; the reason is a text for the run's state. */
  get kill(): AbortSignal {
    return this.#kill.signal;
  }

  /** Aborted when another process has taken the lock, with the error to raise. */
  get lost(): AbortSignal {
    return this.#lost.signal;
  }

  /** Records how an attempt ended, if the state is one of `over`. If the disk refuses, the error of the attempt is the one to show. */
  recordEnd(
    state: 'interrupted' | 'failed',
    reason: string,
    over: readonly RunStateName[] = ['queued', 'running', 'waiting'],
  ): void {
    try {
      this.lock.heartbeat();
      const before = readState(this.paths);
      if (before !== null && over.includes(before.state)) writeState(this.paths, { ...before, state, reason });
    } catch (error) {
      if (!(error instanceof EditrlError)) throw error;
    }
  }

  release(): void {
    clearInterval(this.#timer);
    if (!this.lost.aborted) clearStopRequest(this.paths);
    this.lock.release();
  }

  #look(): void {
    const asked = readStopRequest(this.paths);
    if (asked !== null) this.#stop.abort();
    if (asked === 'now') this.#kill.abort(KILLED);
  }
}

const LEFTOVER_GRACE_S = 2;

/** `workers.json`: what an attempt has started, for the process that takes the run over. */
interface WorkersFile extends ProcessHome {
  readonly mark: string;
  readonly pids: readonly number[];
}

function workersFile(paths: RunPaths): string {
  return join(paths.dir, 'workers.json');
}

/** Records what an attempt has started; only the owner of the run may call it. Raises RunError when the disk refuses. */
export function recordWorkers(paths: RunPaths, { mark, workers }: Started): void {
  const content: WorkersFile = {
    ...homeOf(realLockWorld()),
    mark,
    pids: workers.map(({ pid }) => pid),
  };
  const path = workersFile(paths);
  try {
    // Not synced: when the machine goes down, so do the workers.
    writeFileSync(path, `${JSON.stringify(content)}\n`);
  } catch (cause) {
    throw diskError(path, cause);
  }
}

/**
 * Ends what an earlier attempt left running on this machine; the owner calls it before it starts anything. Anybody who can write to the folder can write
 * that file: only processes that have the attempt's mark in their environment are ended, with their groups.
 */
export async function endLeftoverWorkers(paths: RunPaths): Promise<void> {
  const left = readWorkers(paths);
  if (left === null || !seesProcessesOf(left, realLockWorld())) return;
  const marked = markedProcesses(left.mark);
  const groups = left.pids.filter((pid) => marked.includes(pid));
  await Promise.all([...groups.map((pid) => endGroup(pid, LEFTOVER_GRACE_S)), endMarked(left.mark, LEFTOVER_GRACE_S)]);
}

/** Null if nothing was recorded, or if the launcher died while writing. */
function readWorkers(paths: RunPaths): WorkersFile | null {
  try {
    const value = readJson(workersFile(paths)) as Partial<WorkersFile> | null;
    if (value === null || typeof value.mark !== 'string' || !Array.isArray(value.pids)) return null;
    return value as WorkersFile;
  } catch (error) {
    if (error instanceof RunError) return null;
    throw error;
  }
}
