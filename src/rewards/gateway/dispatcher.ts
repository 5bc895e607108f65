/** Shares the upstreams' limited room among runs: decides which request goes next, and to which upstream. */
import { must } from '../../core/errors.js';
import { sleep, type Clock } from '../../core/clock.js';
import { Members, type RequestEnd } from '../../core/remote/member.js';
import { RunQueue } from '../../core/remote/run_queue.js';
import type { GatewayOptions } from './options.js';
import type { Upstream } from './upstream.js';

/** Permission to send one request to an upstream. It holds a slot there and counts against its run's quota until it is released. */
export interface Lease {
  readonly upstream: Upstream;
  /** Waiting time in milliseconds. */
  readonly waitedMs: number;
  readonly end: (ending: RequestEnd) => void;
}

export type Turn =
  | { readonly kind: 'lease'; readonly lease: Lease }
  /** Too many requests are waiting already: of this run, or in all. */
  | { readonly kind: 'queue_full' }
  /** No suitable upstream is ready. */
  | { readonly kind: 'no_upstream' }
  /** Nothing is asked any more: the gateway is being stopped. */
  | { readonly kind: 'stopping' }
  /** The caller went away while it waited. */
  | { readonly kind: 'given_up' };

export interface SlotRequest {
  readonly run: string;
  /** Whether an upstream is suitable. Readiness is checked separately. */
  readonly allowed: (upstream: Upstream) => boolean;
  readonly signal: AbortSignal;
  /**
   * Goes ahead of the other waiting requests of its run, and is never rejected for the queue's length: for a request that is repeated at
   * another upstream.
   */
  readonly again?: boolean;
}

interface Waiter {
  readonly wish: SlotRequest;
  readonly since: number;
  readonly settle: (turn: Turn) => void;
}

/** The queue of readiness checks. Run names begin with a letter or a digit. */
const GATEWAY_ITSELF = '(gateway)';
/** Milliseconds between checks of whether a full upstream has room for a readiness check. */
const ROOM_INTERVAL_MS = 50;

export type DispatcherOptions = Pick<GatewayOptions, 'quota' | 'maxQueued' | 'maxWaiting'>;

export class Dispatcher {
  readonly #members: Members<Upstream>;
  readonly #queue: RunQueue<Waiter>;
  #stopping = false;

  constructor(
    readonly clock: Clock,
    readonly upstreams: readonly Upstream[],
    { quota, maxQueued, maxWaiting }: DispatcherOptions,
  ) {
    this.#members = new Members(upstreams);
    this.#queue = new RunQueue({ perRun: maxQueued, total: maxWaiting, inFlight: quota ?? Infinity });
  }

  /** Waiting requests of all runs. */
  get waiting(): number {
    return this.#queue.waiting;
  }

  /** Requests in flight and waiting requests by run. Runs without any are not listed. */
  runs(): ReturnType<RunQueue<Waiter>['runs']> {
    return this.#queue.runs();
  }

  /** Resolves when it is this request's turn, or when it never will be. Never rejects. */
  acquire(wish: SlotRequest): Promise<Turn> {
    if (wish.signal.aborted) return Promise.resolve({ kind: 'given_up' });
    if (this.#stopping) return Promise.resolve({ kind: 'stopping' });
    if (!this.#possible(wish)) return Promise.resolve({ kind: 'no_upstream' });
    return new Promise((resolve) => {
      const abort = (): void => {
        if (this.#queue.drop(wish.run, waiter)) waiter.settle({ kind: 'given_up' });
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
      this.#queue.push(wish.run, waiter, wish.again === true)?.settle({ kind: 'queue_full' });
      this.#serve();
    });
  }

  /** A slot for a readiness check: in turn with the runs if the upstream serves them, else once it has room. Null after the signal aborts. */
  async acquireForCheck(upstream: Upstream, stop: AbortSignal): Promise<Lease['end'] | null> {
    if (upstream.ready) {
      const turn = await this.acquire({ run: GATEWAY_ITSELF, allowed: (other) => other === upstream, signal: stop });
      if (turn.kind === 'lease') return turn.lease.end;
    }
    while (!stop.aborted && upstream.limit.inFlight >= upstream.limit.cap) {
      await sleep(this.clock, ROOM_INTERVAL_MS, stop);
    }
    return stop.aborted ? null : upstream.start();
  }

  /** Call this when an upstream became ready or stopped being ready. */
  upstreamsChanged(): void {
    this.#dismiss('no_upstream', ({ wish }) => !this.#possible(wish));
    this.#serve();
  }

  /** Ends all waiting. Requests in flight continue. */
  stop(): void {
    this.#stopping = true;
    this.#dismiss('stopping', () => true);
  }

  #dismiss(kind: 'no_upstream' | 'stopping', isOver: (waiter: Waiter) => boolean): void {
    for (const waiter of this.#queue.dropAll(isOver)) waiter.settle({ kind });
  }

  #possible({ allowed }: SlotRequest): boolean {
    return this.upstreams.some((upstream) => upstream.ready && allowed(upstream));
  }

  /** Grants all slots that are free. */
  #serve(): void {
    while (this.#queue.waiting > 0 && this.#serveOne());
  }

  #serveOne(): boolean {
    const hasRoom = ({ ready, limit }: Upstream): boolean => ready && limit.hasRoom;
    if (!this.upstreams.some(hasRoom)) return false;
    const willDo =
      ({ allowed }: SlotRequest) =>
      (upstream: Upstream): boolean =>
        hasRoom(upstream) && allowed(upstream);
    const taken = this.#queue.take(({ wish }) => this.upstreams.some(willDo(wish)));
    if (taken === null) return false;
    const { wish, since, settle } = taken.item;
    const upstream = must(this.#members.choose(willDo(wish)), 'an upstream with room');
    const end = upstream.start();
    settle({
      kind: 'lease',
      lease: {
        upstream,
        waitedMs: this.clock.now() - since,
        end: (ending) => {
          taken.end();
          end(ending);
          this.#serve();
        },
      },
    });
    return true;
  }
}
