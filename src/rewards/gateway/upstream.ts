/** One judge behind the gateway: whether it may be asked, and how much. */
import type { Clock } from '../../core/clock.js';
import { Member } from '../../balance/member.js';

/**
 * `starting`: not ready since the gateway started; `ready`: may be asked; `open`: was ready and failed (the circuit is open), and is
 * asked nothing until it passes the readiness check again (the half-open probe).
 */
export type UpstreamState = 'starting' | 'ready' | 'open';

export interface UpstreamEvents {
  /** The circuit was opened: a readiness check is due. */
  readonly onOpened: (upstream: Upstream, why: string) => void;
  /** Several requests failed in a row, each of which may be at fault itself: a readiness check is due, while it still serves. */
  readonly onSuspected: (upstream: Upstream) => void;
}

export class Upstream extends Member {
  #state: UpstreamState = 'starting';
  #found = 'not looked at yet';
  #hopeless = false;
  #models: readonly string[] = [];

  /** @param url base URL. */
  constructor(
    url: string,
    readonly index: number,
    clock: Clock,
    cap: number,
    breakerFailures: number,
    readonly events: UpstreamEvents,
  ) {
    // Once its breaker has opened, only its readiness check closes it.
    super(url, clock, { cap, failures: breakerFailures, doubts: breakerFailures, pauseMs: Infinity });
  }

  get state(): UpstreamState {
    return this.#state;
  }

  get ready(): boolean {
    return this.#state === 'ready';
  }

  /** Why it is not ready, in words. */
  get found(): string {
    return this.#found;
  }

  /** Whether waiting cannot help: it serves another model, refuses the key, or is not a judge server. */
  get hopeless(): boolean {
    return this.#hopeless;
  }

  /** What its last listing named. */
  get models(): readonly string[] {
    return this.#models;
  }

  serves(model: string): boolean {
    return this.ready && this.#models.includes(model);
  }

  becameReady(models: readonly string[]): void {
    this.#state = 'ready';
    this.#found = '';
    this.#hopeless = false;
    this.works();
    this.#models = models;
  }

  /** A readiness check found it not ready; takes it out of service if it was ready. */
  notReady(found: string, hopeless: boolean, models: readonly string[] = []): void {
    if (this.#state === 'ready') this.#state = 'open';
    this.#found = found;
    this.#hopeless = hopeless;
    this.#models = models;
  }

  protected override suspected(): void {
    if (this.ready) this.events.onSuspected(this);
  }

  protected override opened(found: string): void {
    if (!this.ready) return;
    this.#state = 'open';
    this.#found = `${this.breaker.failures} requests in a row failed, the last one: ${found}`;
    this.events.onOpened(this, this.#found);
  }
}
