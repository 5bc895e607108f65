/**
 * Ownership of a run or of a swept experiment: held from acquiring its lock to releasing it, over all attempts.
 * Stop requests arrive as a file, because one process may own several runs and a signal would end them all.
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

/** Milliseconds between checks for a stop request. */
const STOP_INTERVAL_MS = 200;

/** The reason recorded for a run that stopped on request. */
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
    // A request left from before was meant for an earlier owner.
    clearStopRequest(paths);
    lock.keepAlive((error) => this.#lost.abort(error));
    this.#timer = setInterval(() => this.#checkStopRequest(), STOP_INTERVAL_MS).unref();
  }

  /** Acquires a folder's lock. Raises InUseError when another process holds it, RunError on a disk error. */
  static take(paths: RunPaths): Ownership {
    return new Ownership(paths, acquireLock(paths));
  }

  /** Aborted when someone requests a checkpoint and the end of the run. */
  get stop(): AbortSignal {
    return this.#stop.signal;
  }

  /** Aborted when someone requests an immediate end. The signal's reason is the text for the run's state. */
  get kill(): AbortSignal {
    return this.#kill.signal;
  }

  /** Aborted with the error to raise when another process has taken the lock. */
  get lost(): AbortSignal {
    return this.#lost.signal;
  }

  /**
   * Records how an attempt ended if the run's state is in `over`. A disk error here is dropped, so that the attempt's
   * own error is shown.
   */
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

  #checkStopRequest(): void {
    const request = readStopRequest(this.paths);
    if (request !== null) this.#stop.abort();
    if (request === 'now') this.#kill.abort(KILLED);
  }
}

const LEFTOVER_GRACE_S = 2;

/** `workers.json`: the processes of an attempt. A process that takes the run over ends them. */
interface WorkersFile extends ProcessHome {
  readonly mark: string;
  readonly pids: readonly number[];
}

function workersFile(paths: RunPaths): string {
  return join(paths.dir, 'workers.json');
}

/** Records the processes of an attempt. Only the run's owner may call it. Raises RunError on a disk error. */
export function recordWorkers(paths: RunPaths, { mark, workers }: Started): void {
  const content: WorkersFile = {
    ...homeOf(realLockWorld()),
    mark,
    pids: workers.map(({ pid }) => pid),
  };
  const path = workersFile(paths);
  try {
    // Not synced: if the machine goes down, the workers do too.
    writeFileSync(path, `${JSON.stringify(content)}\n`);
  } catch (cause) {
    throw diskError(path, cause);
  }
}

/**
 * Ends processes of an earlier attempt on this machine. The owner calls it before starting anything.
 * Anyone who can write to the folder can write `workers.json`. So it only ends process groups whose environment
 * contains the attempt's mark.
 */
export async function endLeftoverWorkers(paths: RunPaths): Promise<void> {
  const left = readWorkers(paths);
  if (left === null || !seesProcessesOf(left, realLockWorld())) return;
  const marked = markedProcesses(left.mark);
  const groups = left.pids.filter((pid) => marked.includes(pid));
  await Promise.all([...groups.map((pid) => endGroup(pid, LEFTOVER_GRACE_S)), endMarked(left.mark, LEFTOVER_GRACE_S)]);
}

/** Returns null if nothing was recorded, or if the launcher died while writing. */
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
