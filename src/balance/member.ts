/** Equal servers: the state of each, and which one is asked. */
import type { Clock } from '../core/clock.js';
import { Breaker, FailureRow } from './breaker.js';
import { AdaptiveLimit, type LoadSign } from './limit.js';

/**
 * What the end of a request says about whether its server works: `unsure` if the request itself may be at fault, `nothing` if its caller cancelled
 * it.
 */
export type HealthSign = 'works' | 'fails' | 'unsure' | 'nothing';

/** What the end of a request tells of its server. */
export interface RequestEnd {
  readonly load: LoadSign;
  readonly health: HealthSign;
  /** Identifies the failed request, so that two failures of the same request count once; see `FailureRow`. */
  readonly request?: unknown;
  /** A description of the failure. */
  readonly found?: string;
}

export interface MemberOptions {
  /** Requests that may be under way, at most; see `AdaptiveLimit`. */
  readonly cap: number;
  /** Requests that fail in a row, after which it is left alone, and for how long. */
  readonly failures: number;
  readonly pauseMs: number;
  /** Like `failures`, for requests that may be at fault themselves: it takes more of them to doubt a server that answers. */
  readonly doubts: number;
}

/** One server among equals, as its callers see it. */
export class Member {
  readonly limit: AdaptiveLimit;
  readonly breaker: Breaker;
  /**
   * Requests that the server itself answered with an error, and similar ones: they may be invalid, and no caller may block a server for others by
   * invalid requests.
   */
  readonly #unsure: FailureRow;
  #busyUntil = -Infinity;

  constructor(
    readonly url: string,
    readonly clock: Clock,
    { cap, failures, pauseMs, doubts }: MemberOptions,
  ) {
    this.limit = new AdaptiveLimit(clock, cap);
    this.breaker = new Breaker(clock, failures, pauseMs);
    this.#unsure = new FailureRow(doubts);
  }

  /** How long it still wants to be left alone, in milliseconds. */
  get waitMs(): number {
    return Math.max(0, this.#busyUntil - this.clock.now());
  }

  /** It asked to be left alone, having too much to do. */
  busyFor(milliseconds: number): void {
    this.#busyUntil = Math.max(this.#busyUntil, this.clock.now() + milliseconds);
  }

  /** Counts a request as under way. The returned function ends it, once. */
  start(): (ending: RequestEnd) => void {
    const end = this.limit.start();
    this.breaker.asked();
    let ended = false;
    return (ending) => {
      if (ended) return;
      ended = true;
      end(ending.load);
      this.#told(ending);
    };
  }

  /** It is known to work. */
  protected works(): void {
    this.breaker.succeeded();
    this.#unsure.clear();
  }

  /** The number of failures in a row of requests that may be at fault themselves. A caller that can check the server does so instead. */
  protected suspected(): void {
    this.breaker.open();
  }

  /** It has just failed so often that it is left alone. */
  protected opened?(found: string): void;

  #told({ health, request, found = '' }: RequestEnd): void {
    if (health === 'works') this.works();
    if (health === 'fails' && this.breaker.failed(request)) this.opened?.(found);
    if (health !== 'unsure' || !this.#unsure.add(request)) return;
    this.#unsure.clear();
    this.suspected();
  }
}

export const routings = ['least_loaded', 'round_robin'] as const;
/** How to choose among the available servers: the one with the smallest share of its limit in use, or each in turn. */
export type Routing = (typeof routings)[number];

/** Chooses among servers. */
export class Members<M extends Member> {
  #next = 0;

  constructor(
    readonly all: readonly M[],
    readonly routing: Routing,
  ) {}

  /** The server to ask next; null if none is suitable. Ties are broken in turn. */
  choose(willDo: (member: M) => boolean): M | null {
    const { length } = this.all;
    let best: number | null = null;
    for (let step = 0; step < length; step++) {
      const at = (this.#next + step) % length;
      if (!willDo(this.all[at])) continue;
      if (best === null || this.all[at].limit.load < this.all[best].limit.load) best = at;
      if (this.routing === 'round_robin') break;
    }
    if (best === null) return null;
    this.#next = (best + 1) % length;
    return this.all[best];
  }
}
