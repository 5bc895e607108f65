/** One judge behind the gateway: whether it may be asked, and how much. */
import type { Clock } from '../../core/clock.js';
import type { LoadSign } from '../../balance/limit.js';
import { AdaptiveLimit } from '../../balance/limit.js';

/**
 * `starting`: not ready since the gateway started; `ready`: may be asked; `open`: was ready and failed (the circuit is open), and is
 * asked nothing until it passes the readiness check again (the half-open probe).
 */
export type UpstreamState = 'starting' | 'ready' | 'open';

/** What the end of a request says about whether its server works. */
export type HealthSign = 'works' | 'fails' | 'nothing';

export interface UpstreamEvents {
  /** The circuit was opened: a readiness check is due. */
  readonly onOpened: (upstream: Upstream, why: string) => void;
  /** Requests were given up by their callers time after time and none went well: a readiness check is due, while it still serves. */
  readonly onSuspected: (upstream: Upstream) => void;
}

export class Upstream {
  readonly limit: AdaptiveLimit;
  #state: UpstreamState = 'starting';
  #found = 'not looked at yet';
  #hopeless = false;
  #failures = 0;
  #givenUp = 0;
  #models: readonly string[] = [];

  /** @param url base URL ending in `/v1`. */
  constructor(
    readonly url: string,
    readonly index: number,
    clock: Clock,
    cap: number,
    readonly breakerFailures: number,
    readonly events: UpstreamEvents,
  ) {
    this.limit = new AdaptiveLimit(clock, cap);
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

  /** Whether waiting alone cannot help: it serves another model, refuses the key, or is no such server. */
  get hopeless(): boolean {
    return this.#hopeless;
  }

  /** What its last listing named. */
  get models(): readonly string[] {
    return this.#models;
  }

  get failuresInARow(): number {
    return this.#failures;
  }

  serves(model: string): boolean {
    return this.ready && this.#models.includes(model);
  }

  becameReady(models: readonly string[]): void {
    this.#state = 'ready';
    this.#found = '';
    this.#hopeless = false;
    this.#failures = 0;
    this.#givenUp = 0;
    this.#models = models;
  }

  /** A readiness check found it not ready; closes it where it was. */
  notReady(found: string, hopeless: boolean, models: readonly string[] = []): void {
    if (this.#state === 'ready') this.#state = 'open';
    this.#found = found;
    this.#hopeless = hopeless;
    this.#models = models;
  }

  /** Takes a slot. The returned function ends the request with what it told. */
  start(): (load: LoadSign, health: HealthSign, found?: string) => void {
    const end = this.limit.start();
    return (load, health, found = '') => {
      end(load);
      if (health === 'works') {
        this.#failures = 0;
        this.#givenUp = 0;
      } else if (health === 'fails') this.#failed(found);
    };
  }

  /** A caller went away before this server answered it. */
  givenUp(): void {
    if (++this.#givenUp !== this.breakerFailures) return;
    this.#givenUp = 0;
    if (this.ready) this.events.onSuspected(this);
  }

  #failed(found: string): void {
    this.#failures++;
    if (!this.ready || this.#failures < this.breakerFailures) return;
    this.#state = 'open';
    this.#found = `${this.#failures} requests in a row failed, the last one: ${found}`;
    this.events.onOpened(this, this.#found);
  }
}
