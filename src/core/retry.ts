/** Retries with exponential back-off: the shared policy of everything that contacts a remote service. */
import { sleep, systemClock, type Clock } from './clock.js';

/** How the pauses between attempts grow. */
export interface Backoff {
  /** The pause after the first failure, in milliseconds; doubled after each further one. */
  readonly backoffBaseMs: number;
  /** No pause is longer. */
  readonly backoffCapMs: number;
}

/** The range of the random factor that a pause is multiplied by. */
export type Jitter = readonly [least: number, most: number];

/** "Full jitter" (Brooker, AWS Architecture Blog, 2015): uniform from 0 to the pause. */
export const FULL_JITTER: Jitter = [0, 1];

/**
 * The pause after so many failures, counted from 0, in milliseconds: u * min(cap, base * 2^failures), with u uniform in the range of the jitter.
 * @param random uniform in [0, 1); it must not draw from a stream that training uses.
 */
export function backoffMs(
  { backoffBaseMs, backoffCapMs }: Backoff,
  failures: number,
  [least, most]: Jitter,
  random: () => number,
): number {
  return Math.min(backoffCapMs, backoffBaseMs * 2 ** failures) * (least + (most - least) * random());
}

/** An attempt failed in a way that a retry may get past: the connection broke, or the server is overloaded. */
export class TransientError extends Error {
  /**
   * @param found what was found, in words.
   * @param waitMs how long the server asks to be left alone; null where it does not say.
   */
  constructor(
    readonly found: string,
    readonly waitMs: number | null = null,
    cause?: unknown,
  ) {
    super(found, { cause });
  }
}

export interface RetryPolicy extends Backoff {
  /** Retries in a row before giving up; Infinity never gives up. */
  readonly retries: number;
}

/** A server that asks for a longer pause than this is not retried. */
export const LONGEST_WAIT_MS = 300_000;

export interface RetryOptions {
  readonly policy: RetryPolicy;
  /** Ends a pause early; the next attempt has to check it. */
  readonly signal: AbortSignal;
  /** The range of the random factor of each pause; default: [1, 1]. */
  readonly jitter?: Jitter;
  /** Which other errors a retry may get past; default: none. */
  readonly transientErrorOf?: (cause: unknown) => TransientError | null;
  /** Progress of the work. The count of retries restarts whenever an attempt gets further. */
  readonly progress?: () => number;
  /** Called before each pause with the number of failures so far. */
  readonly onRetry?: (error: TransientError, failures: number) => void;
  readonly clock?: Clock;
}

/**
 * Repeats the work while it fails with errors that a retry may get past. Between attempts it waits for as long as the server asks, and at least for
 * the back-off. Raises TransientError when it gives up, and every other error at once.
 * @param work is told whether a failure of this attempt will be the last.
 */
export async function retry<T>(work: (isLast: boolean) => Promise<T>, options: RetryOptions): Promise<T> {
  const { policy, signal, jitter = [1, 1], transientErrorOf, clock = systemClock } = options;
  const { progress = () => 0 } = options;
  let reached = progress();
  for (let failures = 0; ;) {
    try {
      return await work(failures >= policy.retries);
    } catch (cause) {
      const error = cause instanceof TransientError ? cause : (transientErrorOf?.(cause) ?? null);
      if (error === null) throw cause;
      const now = progress();
      failures = now > reached ? 1 : failures + 1;
      reached = Math.max(reached, now);
      const waitMs = error.waitMs ?? 0;
      if (failures > policy.retries || waitMs > LONGEST_WAIT_MS) throw error;
      options.onRetry?.(error, failures);
      await sleep(clock, Math.max(waitMs, backoffMs(policy, failures - 1, jitter, Math.random)), signal);
    }
  }
}
