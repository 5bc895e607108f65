/** Waiting: for a run that another process holds, before a run is started again, and for the file by which a run is asked to end. */
import { setTimeout as delay } from 'node:timers/promises';
import { acquireLock } from '../../run/lock.js';
import type { RunPaths } from '../../run/paths.js';
import { readState, writeState } from '../../run/state.js';
import { forgetStopRequest, KILLED, readStopRequest } from '../../run/stop_request.js';

export const LOOK_EVERY_MS = 1_000;

/** The longest pause before a run is started again, in seconds. */
const LONGEST_PAUSE_S = 60;

/** Seconds before the next start, after so many attempts in a row that got no further: what fails at once would fail again at once. */
export function pauseBeforeRestart(inVain: number): number {
  return inVain === 0 ? 0 : Math.min(LONGEST_PAUSE_S, 2 ** (inVain - 1));
}

/** Waits, but not on once asked to stop. */
export async function pause(ms: number, stop: AbortSignal): Promise<void> {
  await delay(ms, undefined, { signal: stop }).catch(() => undefined);
}

/**
 * Waits as the owner of a run, so that nobody takes it for free. True where it is asked to stop meanwhile, which its state then says. Raises
 * RunError where another process has the run.
 */
export async function pauseAsOwner(paths: RunPaths, ms: number, stop: AbortSignal): Promise<boolean> {
  const lock = acquireLock(paths);
  const asked = new StopWatch(paths);
  const stops = AbortSignal.any([stop, asked.stop, asked.kill]);
  // What the last beat met: a disk that refused one is asked again with the next.
  let failed: { readonly error: unknown } | null = null;
  const beatOnce = (): void => {
    try {
      lock.heartbeat();
      failed = null;
    } catch (error) {
      failed = { error };
    }
  };
  const beat = setInterval(beatOnce, LOOK_EVERY_MS);
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

/** Milliseconds between looks for the file by which a run of another trainer is asked to end. */
const STOP_LOOK_MS = 200;

/** Watches for that file. */
export class StopWatch {
  readonly #stop = new AbortController();
  readonly #kill = new AbortController();
  readonly #timer: NodeJS.Timeout;

  /** Forgets what an earlier attempt was asked. */
  constructor(private readonly paths: RunPaths) {
    forgetStopRequest(paths);
    this.#timer = setInterval(() => this.#look(), STOP_LOOK_MS);
    this.#timer.unref();
  }

  /** Aborted when the run is asked to save and end. */
  get stop(): AbortSignal {
    return this.#stop.signal;
  }

  /** Aborted when it is asked to end at once, with that as the reason. */
  get kill(): AbortSignal {
    return this.#kill.signal;
  }

  close(): void {
    clearInterval(this.#timer);
    forgetStopRequest(this.paths);
  }

  #look(): void {
    const asked = readStopRequest(this.paths);
    if (asked !== null) this.#stop.abort();
    if (asked === 'now') this.#kill.abort(KILLED);
  }
}
