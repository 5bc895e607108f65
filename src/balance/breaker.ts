import type { Clock } from '../core/clock.js';

/**
 * Spares a judge that has stopped answering, and its callers the wait: after so many failures in a row, with no success between
 * them, nothing is asked until a pause is over; then one caller may try, and its success lets everyone through again.
 */
export class Breaker {
  #failures = 0;
  #closedUntil = 0;

  constructor(
    readonly clock: Clock,
    readonly limit: number,
    readonly pauseMs: number,
  ) {}

  /** How many failures in a row there were, where the caller must not ask now; null where it may. */
  blocking(): number | null {
    if (this.#failures < this.limit) return null;
    if (this.clock.now() < this.#closedUntil) return this.#failures;
    this.#closedUntil = this.clock.now() + this.pauseMs;
    return null;
  }

  succeeded(): void {
    this.#failures = 0;
  }

  failed(): void {
    this.#failures++;
    if (this.#failures === this.limit) this.#closedUntil = this.clock.now() + this.pauseMs;
  }
}
