/** Waiting: for a run that another process holds, before a run is restarted, and for the file that asks a run to end. */
import { setTimeout as delay } from 'node:timers/promises';
import { acquireLock } from '../../run/lock.js';
import type { RunPaths } from '../../run/paths.js';
import { readState, writeState } from '../../run/state.js';
import { clearStopRequest, KILLED, readStopRequest } from '../../run/stop_request.js';

export const POLL_MS = 1_000;

/** The longest pause before a restart, in seconds. */
const LONGEST_PAUSE_S = 60;

/** Seconds before the next start, given the number of consecutive attempts without progress: what fails at once would fail again at once. */
export function restartDelayS(inVain: number): number {
  return inVain === 0 ? 0 : Math.min(LONGEST_PAUSE_S, 2 ** (inVain - 1));
}

/** Waits until the time is over or a stop is requested. */
export async function pause(ms: number, stop: AbortSignal): Promise<void> {
  await delay(ms, undefined, { signal: stop }).catch(() => undefined);
}

/**
 * Waits as the owner of a run, so that nobody takes it for free. Returns true if asked to stop meanwhile, which is then in its state. Raises RunError
 * when another process has the run.
 */
export async function pauseAsOwner(paths: RunPaths, ms: number, stop: AbortSignal): Promise<boolean> {
  const lock = acquireLock(paths);
  const asked = new StopRequestWatcher(paths);
  const stops = AbortSignal.any([stop, asked.stop, asked.kill]);
  // The error of the last heartbeat: if the disk refused one, the next tries again.
  let failed: { readonly error: unknown } | null = null;
  const beatOnce = (): void => {
    try {
      lock.heartbeat();
      failed = null;
    } catch (error) {
      failed = { error };
    }
  };
  const beat = setInterval(beatOnce, POLL_MS);
  try {
    await pause(ms, stops);
    beatOnce();
    if (failed !== null) throw (failed as { readonly error: unknown }).error;
    const state = readState(paths);
    if (stops.aborted && state !== null) {
      const reason = asked.kill.aborted ? KILLED : 'stopped on request';
      writeState(paths, { ...state, state: 'interrupted', reason });
    }
    return stops.aborted;
  } finally {
    clearInterval(beat);
    asked.close();
    lock.release();
  }
}

/** Milliseconds between checks for the file that asks a run of another trainer to end. */
const STOP_LOOK_MS = 200;

/** Watches for that file. */
export class StopRequestWatcher {
  readonly #stop = new AbortController();
  readonly #kill = new AbortController();
  readonly #timer: NodeJS.Timeout;

  /** Drops requests made to an earlier attempt. */
  constructor(private readonly paths: RunPaths) {
    clearStopRequest(paths);
    this.#timer = setInterval(() => this.#look(), STOP_LOOK_MS);
    this.#timer.unref();
  }

  /** Aborted when the run is asked to save and end. */
  get stop(): AbortSignal {
    return this.#stop.signal;
  }

  /** Aborted when it is asked to end at once; the reason is that request. */
  get kill(): AbortSignal {
    return this.#kill.signal;
  }

  close(): void {
    clearInterval(this.#timer);
    clearStopRequest(this.paths);
  }

  #look(): void {
    const asked = readStopRequest(this.paths);
    if (asked !== null) this.#stop.abort();
    if (asked === 'now') this.#kill.abort(KILLED);
  }
}
