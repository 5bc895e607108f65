import type { Clock } from '../core/clock.js';

/** What the end of a request says about how much load its server can take. */
export type LoadSign = 'carried' | 'overloaded' | 'nothing';

/**
 * How many requests may be under way at one upstream: additive increase, multiplicative decrease (Chiu and Jain, 1989), under a hard
 * cap. It starts at the cap, grows by one for every `limit` requests that went well, and is halved when the server says that it is
 * overloaded: once for all requests that were under way at that time, since they all tell of the same overload.
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

  /** Requests that may be under way now; a whole number from 1 to the cap. */
  get limit(): number {
    return Math.floor(this.#limit);
  }

  get inFlight(): number {
    return this.#inFlight;
  }

  get hasRoom(): boolean {
    return this.#inFlight < this.limit;
  }

  /** The share of the limit that is in use. */
  get load(): number {
    return this.#inFlight / this.limit;
  }

  /** Takes a slot; the returned function gives it back, once. */
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
