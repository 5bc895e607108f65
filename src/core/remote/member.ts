/** Equal servers: the state of each, and how to choose one. */
import type { Clock } from '../clock.js';

/** The verdict of a finished request about its server. `unsure`: the request itself may be at fault. `nothing`: its caller canceled it. */
export type HealthSign = 'works' | 'fails' | 'unsure' | 'nothing';

/** The result of a finished request for its server. */
export interface RequestEnd {
  readonly load: LoadSign;
  readonly health: HealthSign;
  /** Identifies the request, so that two failures of the same request count once, see `FailureRow`. */
  readonly request?: unknown;
  /** A description of the failure. */
  readonly found?: string;
}

export interface MemberOptions {
  /** Requests in flight, at most, see `AdaptiveLimit`. */
  readonly cap: number;
  /** After this many failed requests in a row, the server is skipped for the pause. */
  readonly failures: number;
  readonly pauseMs: number;
  /** Like `failures`, for requests that may be at fault themselves. More of them are needed before a responding server counts as down. */
  readonly doubts: number;
}

/** One server among equals, as its callers see it. */
export class Member {
  readonly limit: AdaptiveLimit;
  readonly breaker: Breaker;
  /** Failures that may be caused by invalid requests. No caller may block a server for others by invalid requests. */
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

  /** Milliseconds for which the server wants no requests. */
  get waitMs(): number {
    return Math.max(0, this.#busyUntil - this.clock.now());
  }

  /** The server is busy and asked for a pause. */
  busyFor(milliseconds: number): void {
    this.#busyUntil = Math.max(this.#busyUntil, this.clock.now() + milliseconds);
  }

  /** Counts a request as in flight. The returned function ends it, once. */
  start(): (ending: RequestEnd) => void {
    const end = this.limit.start();
    this.breaker.requested();
    let ended = false;
    return (ending) => {
      if (ended) return;
      ended = true;
      end(ending.load);
      this.#told(ending);
    };
  }

  /** The server works. */
  protected works(): void {
    this.breaker.succeeded();
    this.#unsure.clear();
  }

  /** Too many requests in a row failed that may be at fault themselves. A subclass that can check the server does so instead. */
  protected suspected(): void {
    this.breaker.open();
  }

  /** Called when the breaker opens. */
  protected opened?(found: string): void;

  #told({ health, request, found = '' }: RequestEnd): void {
    if (health === 'works') this.works();
    if (health === 'fails' && this.breaker.failed(request)) this.opened?.(found);
    if (health !== 'unsure' || !this.#unsure.add(request)) return;
    this.#unsure.clear();
    this.suspected();
  }
}

/** Chooses the server with the smallest share of its limit in use. Ties are broken in turn. */
export class Members<M extends Member> {
  #next = 0;

  constructor(readonly all: readonly M[]) {}

  /** Null if no server is suitable. */
  choose(isSuitable: (member: M) => boolean): M | null {
    const { length } = this.all;
    let best: number | null = null;
    for (let step = 0; step < length; step++) {
      const at = (this.#next + step) % length;
      if (!isSuitable(this.all[at])) continue;
      if (best === null || this.all[at].limit.load < this.all[best].limit.load) best = at;
    }
    if (best === null) return null;
    this.#next = (best + 1) % length;
    return this.all[best];
  }
}

/**
 * Requests that failed in a row without a success between them. A repeated request counts once, so one request that no server can answer
 * never makes a server look dead.
 */
export class FailureRow {
  readonly #requests = new Set<unknown>();

  constructor(readonly limit: number) {}

  /** Up to the limit. */
  get length(): number {
    return this.#requests.size;
  }

  get isFull(): boolean {
    return this.#requests.size >= this.limit;
  }

  /** @param request its identity. Returns whether the row just became full. */
  add(request: unknown): boolean {
    if (this.isFull) return false;
    this.#requests.add(request);
    return this.isFull;
  }

  clear(): void {
    this.#requests.clear();
  }
}

/**
 * A circuit breaker: protects a server that has stopped answering, and saves its callers the wait. After a number of failures in a row it
 * blocks for a pause. Then one caller may try, and its success unblocks everyone.
 */
export class Breaker {
  readonly #row: FailureRow;
  #isOpen = false;
  #closedUntil = -Infinity;

  constructor(
    readonly clock: Clock,
    limit: number,
    readonly pauseMs: number,
  ) {
    this.#row = new FailureRow(limit);
  }

  /** Failures in a row, up to the limit. */
  get failures(): number {
    return this.#row.length;
  }

  /** Whether the server must not be asked now. */
  get blocks(): boolean {
    return this.#isOpen && this.clock.now() < this.#closedUntil;
  }

  /** Call for each request. After the pause, the first caller starts another pause, so that it tries alone. */
  requested(): void {
    if (this.#isOpen && !this.blocks) this.open();
  }

  succeeded(): void {
    this.#row.clear();
    this.#isOpen = false;
  }

  /** Returns whether it just started to block. */
  failed(request: unknown): boolean {
    const opens = this.#row.add(request);
    if (opens) this.open();
    return opens;
  }

  /** Blocks from now on. */
  open(): void {
    this.#isOpen = true;
    this.#closedUntil = this.clock.now() + this.pauseMs;
  }
}

/** The verdict of a finished request about the server's load. */
export type LoadSign = 'carried' | 'overloaded' | 'nothing';

/**
 * How many requests may be in flight at one server: additive increase, multiplicative decrease (Chiu and Jain, 1989), up to a cap. Starts
 * at the cap, grows by one for every `limit` good replies, and is halved when the server is overloaded. All requests that were in flight at
 * that time count as one overload.
 */
export class AdaptiveLimit {
  #limit: number;
  #inFlight = 0;
  #decreasedAt = -Infinity;

  constructor(
    readonly clock: Clock,
    readonly cap: number,
  ) {
    this.#limit = cap;
  }

  /** Requests that may be in flight now, from 1 to the cap. */
  get limit(): number {
    return Math.floor(this.#limit);
  }

  get inFlight(): number {
    return this.#inFlight;
  }

  get hasRoom(): boolean {
    return this.#inFlight < this.limit;
  }

  /** The share of the limit in use. */
  get load(): number {
    return this.#inFlight / this.limit;
  }

  /** Takes a slot. The returned function releases it, once. */
  start(): (sign: LoadSign) => void {
    const started = this.clock.now();
    let ended = false;
    this.#inFlight++;
    return (sign) => {
      if (ended) return;
      ended = true;
      this.#inFlight--;
      this.#learn(sign, started);
    };
  }

  #learn(sign: LoadSign, started: number): void {
    if (sign === 'carried') this.#limit = Math.min(this.cap, this.#limit + 1 / this.#limit);
    if (sign !== 'overloaded' || started < this.#decreasedAt) return;
    this.#limit = Math.max(1, this.#limit / 2);
    this.#decreasedAt = this.clock.now();
  }
}
