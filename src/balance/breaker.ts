import type { Clock } from '../core/clock.js';

/**
 * Requests that failed in a row, with no success between them. The same request counts once, however often it is made, so that one request that no
 * server can answer never makes a server look dead.
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

  /** @param request what names it: two that are the same must be given the same. Returns whether the row is full since now. */
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
 * A circuit breaker: spares a server that has stopped answering, and spares its callers the wait. After a number of failures in a row it blocks until
 * a pause is over; then one caller may try, and its success lets everyone through again.
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

  /** Whether the server is not to be asked now. */
  get blocks(): boolean {
    return this.#isOpen && this.clock.now() < this.#closedUntil;
  }

  /** Call when the server is asked: once the pause is over, the first caller starts another pause, so that it goes alone. */
  asked(): void {
    if (this.#isOpen && !this.blocks) this.open();
  }

  succeeded(): void {
    this.#row.clear();
    this.#isOpen = false;
  }

  /** Returns whether it blocks since now. */
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
