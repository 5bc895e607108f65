/**
 * Answers from other machines. Each is stored before use, and found again by its name and request. So a resumed run equals an uninterrupted
 * one, although servers may answer differently the second time.
 */
import pLimit, { type LimitFunction } from 'p-limit';
import type { RemoteExchange } from '../remote/exchange.js';
import { type Clock, Deadline, allOrAbort, systemClock } from '../clock.js';
import { EndpointError } from '../errors.js';
import { WaitInterrupted } from './rank_zero.js';
import type { ProcessGroup } from './process_group.js';

export interface ReplayOptions<T extends RemoteExchange> {
  readonly store: {
    find(key: string, requestHash: string): T | undefined | Promise<T | undefined>;
    put(exchange: T): void | Promise<void>;
  };
  /** Sends the lines that this rank has not stored yet to rank 0, see `gatherLines`. */
  readonly keep: () => Promise<void>;
  /** Requests in flight on this rank. */
  readonly concurrency: number;
  /** Time limit of one answer. */
  readonly maxWaitMs: number;
  readonly stop: AbortSignal;
  /** Closes connections and files. */
  readonly close: () => Promise<void>;
  readonly clock?: Clock;
}

export class Replay<T extends RemoteExchange> {
  readonly #slots: LimitFunction;

  constructor(private readonly options: ReplayOptions<T>) {
    this.#slots = pLimit(options.concurrency);
  }

  /** Every rank calls this when an iteration's answers are complete. Rank 0 then stores them. */
  keep(): Promise<void> {
    return this.options.keep();
  }

  close(): Promise<void> {
    return this.options.close();
  }

  /** Returns the results in order. The first error cancels the others. Raises WaitInterrupted if the run is asked to stop. */
  all<R>(works: readonly ((over: AbortSignal) => Promise<R>)[]): Promise<R[]> {
    const starts = works.map((work) => (over: AbortSignal) => this.#slots(() => work(over)));
    return allOrAbort(starts, this.options.stop);
  }

  /**
   * The answer to one request under each of several names, in their order. An answer that an interrupted run stored under one name is used
   * for the others. Otherwise calls `ask` once. Raises what `ask` raises, and WaitInterrupted if the run is asked to stop.
   */
  async answers(
    keys: readonly string[],
    requestHash: string,
    ask: (within: Deadline) => Promise<Omit<T, keyof RemoteExchange>>,
    over: AbortSignal,
  ): Promise<Omit<T, keyof RemoteExchange>[]> {
    const { store } = this.options;
    const stored = await Promise.all(keys.map(async (key) => store.find(key, requestHash)));
    const given = stored.find((one) => one !== undefined) ?? (await this.within(ask, over));
    return Promise.all(
      keys.map(async (key, i) => {
        const own = stored[i];
        if (own === undefined) await store.put({ ...given, key, requestHash } as T);
        return own ?? given;
      }),
    );
  }

  /** Raises WaitInterrupted if the run is asked to stop. */
  within<R>(work: (deadline: Deadline) => Promise<R>, over = this.options.stop): Promise<R> {
    return waitForRemote(this.options, work, over);
  }
}

/** Does work that waits for another machine, within its time limit. Raises the errors of the work, and WaitInterrupted if the run is asked to stop. */
export async function waitForRemote<R>(
  { stop, maxWaitMs, clock = systemClock }: Pick<ReplayOptions<never>, 'stop' | 'maxWaitMs' | 'clock'>,
  work: (deadline: Deadline) => Promise<R>,
  over = stop,
): Promise<R> {
  const deadline = new Deadline(clock, maxWaitMs, over);
  try {
    return await work(deadline);
  } catch (error) {
    throw stop.aborted && error instanceof EndpointError ? new WaitInterrupted() : error;
  } finally {
    deadline.dispose();
  }
}

/** Sends what each rank has collected to rank 0, which stores it. Every rank calls it. */
export async function gatherLines<L>(
  group: Pick<ProcessGroup, 'gather'>,
  lines: { take(): L[]; put(line: L): void },
): Promise<void> {
  const all = await group.gather(lines.take());
  for (const line of (all ?? []).flat()) lines.put(line);
}
