/** Retries with exponential backoff, shared by everything that contacts a remote service. */
import { sleep, systemClock, type Clock } from './clock.js';

/** How the pauses between attempts grow. */
export interface Backoff {
  /** The pause after the first failure in milliseconds. Doubled after each further failure. */
  readonly backoffBaseMs: number;
  /** The longest pause. */
  readonly backoffCapMs: number;
}

/** The range of the random factor of a pause. */
export type Jitter = readonly [least: number, most: number];

/** "Full jitter" (Brooker, AWS Architecture Blog, 2015): uniform from 0 to the pause. */
export const FULL_JITTER: Jitter = [0, 1];

/**
 * The pause after this many failures (from 0) in milliseconds: u * min(cap, base * 2^failures), with u uniform in the range of the jitter.
 * @param random uniform in [0, 1). It must not draw from a stream that training uses.
 */
export function backoffMs(
  { backoffBaseMs, backoffCapMs }: Backoff,
  failures: number,
  [least, most]: Jitter,
  random: () => number,
): number {
  return Math.min(backoffCapMs, backoffBaseMs * 2 ** failures) * (least + (most - least) * random());
}

/** An attempt failed, and a retry may succeed: the connection broke, or the server is overloaded. */
export class TransientError extends Error {
  /**
   * @param found what was found.
   * @param waitMs the pause that the server asks for. Null if there is none.
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
  /** Retries in a row before giving up. Infinity never gives up. */
  readonly retries: number;
}

/** A server that asks for a longer pause is not retried. */
export const MAX_WAIT_MS = 300_000;

export interface RetryOptions {
  readonly policy: RetryPolicy;
  /** Ends a pause early. The next attempt has to check it. */
  readonly signal: AbortSignal;
  /** The range of the random factor of each pause, [1, 1] by default. */
  readonly jitter?: Jitter;
  /** Recognizes other errors that may be retried. Default: none. */
  readonly transientErrorOf?: (cause: unknown) => TransientError | null;
  /** Progress of the work. The count of retries restarts whenever an attempt gets further. */
  readonly progress?: () => number;
  /** Called before each pause with the number of failures so far. */
  readonly onRetry?: (error: TransientError, failures: number) => void;
  readonly clock?: Clock;
}

/**
 * Repeats the work while it raises errors that may be retried. Pauses for the backoff, or longer if the server asks for it. Raises
 * TransientError when it gives up, and every other error at once.
 * @param work gets whether this is the last attempt.
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
      if (failures > policy.retries || waitMs > MAX_WAIT_MS) throw error;
      options.onRetry?.(error, failures);
      await sleep(clock, Math.max(waitMs, backoffMs(policy, failures - 1, jitter, Math.random)), signal);
    }
  }
}
