/** Who is asked next, and where: a queue that is fair between runs, before upstreams with limited room. */
import type { Clock } from '../../core/clock.js';
import type { LoadSign } from '../../balance/limit.js';
import type { GatewayOptions } from './options.js';
import type { HealthSign, Upstream } from './upstream.js';

/** Leave to ask one upstream; it holds a slot there and counts against its run's quota until it is ended. */
export interface Lease {
  readonly upstream: Upstream;
  /** How long it was waited for, in milliseconds. */
  readonly waitedMs: number;
  readonly end: (load: LoadSign, health: HealthSign, found?: string) => void;
}

export type Turn =
  | { readonly kind: 'lease'; readonly lease: Lease }
  /** Too many requests of this run wait already. */
  | { readonly kind: 'queue_full'; readonly waiting: number }
  /** No upstream that would do is ready. */
  | { readonly kind: 'no_upstream' }
  /** The caller went away while it waited. */
  | { readonly kind: 'given_up' };

export interface Wish {
  readonly run: string;
  /** Which upstreams would do; whether they are ready is looked at besides. */
  readonly allowed: (upstream: Upstream) => boolean;
  readonly signal: AbortSignal;
  /** Goes before what its run has waiting, and is never refused for the queue's length: a request that is made again elsewhere. */
  readonly again?: boolean;
}

interface Waiter {
  readonly wish: Wish;
  readonly since: number;
  readonly settle: (turn: Turn) => void;
}

interface RunQueue {
  inFlight: number;
  /** Counts up over all runs; 0 for a run that has come since it last had nothing to do. */
  lastServed: number;
  readonly waiting: Waiter[];
}

export type DispatcherOptions = Pick<GatewayOptions, 'routing' | 'quota' | 'maxQueued'>;

/** Serves the run that was served longest ago, one request at a time; within a run, in the order in which requests came. */
export class Dispatcher {
  readonly #runs = new Map<string, RunQueue>();
  #served = 0;
  #nextUpstream = 0;

  constructor(
    readonly clock: Clock,
    readonly upstreams: readonly Upstream[],
    readonly options: DispatcherOptions,
  ) {}

  /** Requests that wait, over all runs. */
  get waiting(): number {
    let sum = 0;
    for (const { waiting } of this.#runs.values()) sum += waiting.length;
    return sum;
  }

  /** Requests under way and waiting by run; runs that have neither are not listed. */
  runs(): ReadonlyMap<string, { readonly inFlight: number; readonly waiting: number }> {
    return new Map(
      [...this.#runs].map(([name, run]) => [name, { inFlight: run.inFlight, waiting: run.waiting.length }]),
    );
  }

  /** Resolves when it is this request's turn, or when it never will be. Never rejects. */
  acquire(wish: Wish): Promise<Turn> {
    if (wish.signal.aborted) return Promise.resolve({ kind: 'given_up' });
    if (!this.#possible(wish)) return Promise.resolve({ kind: 'no_upstream' });
    const run = this.#run(wish.run);
    if (wish.again !== true && run.waiting.length >= this.options.maxQueued) {
      return Promise.resolve({ kind: 'queue_full', waiting: run.waiting.length });
    }
    return new Promise((resolve) => {
      const abort = (): void => {
        const at = run.waiting.indexOf(waiter);
        if (at < 0) return;
        run.waiting.splice(at, 1);
        this.#forget(wish.run, run);
        waiter.settle({ kind: 'given_up' });
      };
      const waiter: Waiter = {
        wish,
        since: this.clock.now(),
        settle: (turn) => {
          wish.signal.removeEventListener('abort', abort);
          resolve(turn);
        },
      };
      wish.signal.addEventListener('abort', abort);
      if (wish.again === true) run.waiting.unshift(waiter);
      else run.waiting.push(waiter);
      this.#serve();
    });
  }

  /** To be called when an upstream became ready or stopped being so. */
  upstreamsChanged(): void {
    for (const [name, run] of this.#runs) {
      const stranded = run.waiting.filter(({ wish }) => !this.#possible(wish));
      for (const waiter of stranded) {
        run.waiting.splice(run.waiting.indexOf(waiter), 1);
        waiter.settle({ kind: 'no_upstream' });
      }
      this.#forget(name, run);
    }
    this.#serve();
  }

  #possible({ allowed }: Wish): boolean {
    return this.upstreams.some((upstream) => upstream.ready && allowed(upstream));
  }

  /** Hands out whatever can be handed out now. */
  #serve(): void {
    while (this.upstreams.some(({ ready, limit }) => ready && limit.hasRoom) && this.#serveOne());
  }

  #serveOne(): boolean {
    const inTurn = [...this.#runs].sort(([, a], [, b]) => a.lastServed - b.lastServed);
    for (const [name, run] of inTurn) {
      if (run.inFlight >= (this.options.quota ?? Infinity)) continue;
      for (const [at, waiter] of run.waiting.entries()) {
        const upstream = this.#pick(waiter.wish);
        if (upstream === null) continue;
        run.waiting.splice(at, 1);
        run.inFlight++;
        run.lastServed = ++this.#served;
        waiter.settle({ kind: 'lease', lease: this.#lease(name, run, upstream, this.clock.now() - waiter.since) });
        return true;
      }
    }
    return false;
  }

  #lease(name: string, run: RunQueue, upstream: Upstream, waitedMs: number): Lease {
    const end = upstream.start();
    let ended = false;
    return {
      upstream,
      waitedMs,
      end: (load, health, found) => {
        if (ended) return;
        ended = true;
        run.inFlight--;
        end(load, health, found);
        this.#serve();
        this.#forget(name, run);
      },
    };
  }

  #pick({ allowed }: Wish): Upstream | null {
    const { length } = this.upstreams;
    let best: Upstream | null = null;
    for (let step = 0; step < length; step++) {
      const upstream = this.upstreams[(this.#nextUpstream + step) % length];
      if (!upstream.ready || !upstream.limit.hasRoom || !allowed(upstream)) continue;
      if (best === null || upstream.limit.load < best.limit.load) best = upstream;
      if (this.options.routing === 'round-robin') break;
    }
    // Equal loads are broken in turn, too.
    if (best !== null) this.#nextUpstream = (best.index + 1) % length;
    return best;
  }

  #run(name: string): RunQueue {
    const known = this.#runs.get(name);
    if (known !== undefined) return known;
    const run: RunQueue = { inFlight: 0, lastServed: 0, waiting: [] };
    this.#runs.set(name, run);
    return run;
  }

  #forget(name: string, run: RunQueue): void {
    if (run.inFlight === 0 && run.waiting.length === 0 && this.#runs.get(name) === run) this.#runs.delete(name);
  }
}
