/** Time as the judge's callers see it: injected, so that tests control it. */
import { allowManyListeners } from './listeners.js';

export interface Clock {
  /** Milliseconds since an arbitrary but fixed moment. */
  now(): number;
  /** Calls back once after this many milliseconds; the returned function cancels it. */
  after(milliseconds: number, callback: () => void): () => void;
}

/** The longest delay of a Node timer, in milliseconds (24 days); a longer one would fire at once. */
export const longestTimer = 2_147_483_647;

export const systemClock: Clock = {
  now: () => performance.now(),
  after(milliseconds, callback) {
    const timer = setTimeout(callback, Math.min(milliseconds, longestTimer));
    return () => clearTimeout(timer);
  },
};

/** Waits this many milliseconds, or until the signal aborts; it never rejects, so the caller checks the signal afterwards. */
export function sleep(clock: Clock, milliseconds: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal?.aborted === true) {
      resolve();
      return;
    }
    const finish = (): void => {
      cancel();
      signal?.removeEventListener('abort', finish);
      resolve();
    };
    const cancel = clock.after(milliseconds, finish);
    if (signal === undefined) return;
    // Many requests that are waited for share one limit, which is not a leak.
    allowManyListeners(signal);
    signal.addEventListener('abort', finish);
  });
}
