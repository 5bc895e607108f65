/** Time that tests can control: sleeping, deadlines, and work that is canceled together. */
import { setMaxListeners } from 'node:events';

export interface Clock {
  /** Milliseconds since an arbitrary but fixed moment. */
  now(): number;
  /** Calls back once after this many milliseconds. The returned function cancels it. */
  after(milliseconds: number, callback: () => void): () => void;
}

/** The longest delay of a Node timer, in milliseconds (24 days). A longer one would fire at once. */
export const MAX_TIMER_MS = 2_147_483_647;

export const systemClock: Clock = {
  now: () => performance.now(),
  after(milliseconds, callback) {
    const timer = setTimeout(callback, Math.min(milliseconds, MAX_TIMER_MS));
    return () => clearTimeout(timer);
  },
};

/** Waits this many milliseconds, or until the signal aborts. Never rejects, so the caller checks the signal afterwards. */
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
    // Many pending requests share one limit, which is not a leak.
    allowManyListeners(signal);
    signal.addEventListener('abort', finish);
  });
}

/**
 * Lets any number of listeners share a signal without Node's leak warning. The limit is Infinity rather than 0, which means the same,
 * because `getMaxListeners` of Node 20, which `fetch` calls, raises an error for a signal whose limit is 0.
 */
export function allowManyListeners(signal: AbortSignal): void {
  setMaxListeners(Infinity, signal);
}

/**
 * A time limit within its parent, which is an abort signal or another limit. Custom, because every request has one: it must release its
 * parent when the request is over, and creates a signal only if one is read.
 */
export class Deadline {
  readonly #end: number;
  readonly #dispose: () => void;
  readonly #onOver = new Set<() => void>();
  #over = false;
  #controller: AbortController | null = null;

  constructor(
    readonly clock: Clock,
    milliseconds: number,
    parent?: AbortSignal | Deadline,
  ) {
    const end = (): void => this.#finish();
    this.#end = clock.now() + milliseconds;
    const cancel = clock.after(milliseconds, end);
    const letGo = parent === undefined ? () => {} : hangOn(parent, end);
    this.#dispose = () => {
      cancel();
      letGo();
    };
  }

  get signal(): AbortSignal {
    if (this.#controller === null) {
      this.#controller = new AbortController();
      if (this.#over) this.#controller.abort();
    }
    return this.#controller.signal;
  }

  get over(): boolean {
    return this.#over;
  }

  remainingMs(): number {
    return Math.max(0, this.#end - this.clock.now());
  }

  /**
   * Calls back once when the time is over or the parent ends, or immediately if that has already happened. The returned
   * function cancels the call.
   */
  onOver(callback: () => void): () => void {
    if (this.#over) callback();
    else this.#onOver.add(callback);
    return () => void this.#onOver.delete(callback);
  }

  /** Call when the work is over. */
  dispose(): void {
    this.#dispose();
  }

  #finish(): void {
    if (this.#over) return;
    this.#over = true;
    this.#controller?.abort();
    for (const callback of this.#onOver) callback();
    this.#onOver.clear();
  }
}

function hangOn(parent: AbortSignal | Deadline, end: () => void): () => void {
  if (parent instanceof Deadline) return parent.onOver(end);
  // All requests in flight listen to one parent, which is not a leak.
  allowManyListeners(parent);
  parent.addEventListener('abort', end);
  if (parent.aborted) end();
  return () => parent.removeEventListener('abort', end);
}

/**
 * Starts all and returns their results in order. If one rejects, aborts the signal of the others, waits for them, and raises the first
 * error, so that nothing continues in the background. The caller's signal aborts all.
 */
export async function allOrAbort<T>(
  starts: readonly ((signal: AbortSignal) => Promise<T>)[],
  signal?: AbortSignal,
): Promise<T[]> {
  const controller = new AbortController();
  const abort = (): void => controller.abort();
  if (signal !== undefined) {
    // All work in flight listens to one signal, which is not a leak.
    allowManyListeners(signal);
    signal.addEventListener('abort', abort);
  }
  if (signal?.aborted === true) abort();
  let first: { readonly error: unknown } | null = null;
  try {
    const started = starts.map(async (start) => {
      try {
        return await start(controller.signal);
      } catch (error) {
        first ??= { error };
        abort();
        throw error;
      }
    });
    await Promise.allSettled(started);
    if (first !== null) throw (first as { readonly error: unknown }).error;
    return await Promise.all(started);
  } finally {
    signal?.removeEventListener('abort', abort);
  }
}
