/** One judge behind the gateway: whether it may be asked, and how much. */
import { type Clock, sleep } from '../../core/clock.js';
import { Member } from '../../core/remote/member.js';
import type { JudgeCheck } from '../judge/readiness.js';

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

export interface WatchServices {
  readonly clock: Clock;
  readonly stop: AbortSignal;
  /** A look at whether it lists the model and completes a request with two images. Never rejects. */
  readonly look: (upstream: Upstream) => Promise<JudgeCheck>;
  /** Called after every change of its state. */
  readonly onChange: (upstream: Upstream) => void;
  readonly log: (level: 'info' | 'warn', text: string) => void;
}

const firstPauseMs = 500;
const longestPauseMs = 10_000;
/** Pause after a check that found a suspicion unfounded; doubled each time, up to `longestPauseMs`. */
const firstSparedMs = 1_000;

export class UpstreamWatch {
  #wake: (() => void) | null = null;
  #woken = false;
  #said = '';
  #lookedAt = -Infinity;
  #sparedMs = firstSparedMs;

  constructor(
    readonly upstream: Upstream,
    readonly services: WatchServices,
  ) {}

  /** Looks again at once. */
  wake(): void {
    this.#woken = true;
    this.#wake?.();
  }

  /** Until it is told to stop. */
  async run(): Promise<void> {
    const { stop, look } = this.services;
    let pause = firstPauseMs;
    while (!stop.aborted) {
      await this.#spare();
      if (stop.aborted) return;
      this.#woken = false;
      const isSuspected = this.upstream.ready;
      const found = await look(this.upstream);
      if (stop.aborted) return;
      if (isSuspected) this.#lookedAt = this.services.clock.now();
      if (found.state !== 'ready') {
        // A serving upstream that turned the check away is checked again: a client that fills a server must not take it from the others.
        if (found.busy !== true || !this.upstream.ready) this.#notReady(found);
        await this.#rest(pause);
        pause = Math.min(longestPauseMs, pause * 2);
        continue;
      }
      pause = firstPauseMs;
      this.#ready(found);
      await this.#rest(Infinity);
    }
  }

  /**
   * A look costs the judge a completion with two images. A run whose every request fails, however well the judge works, would bring about one look
   * after another: while it serves, looks keep a distance that grows as long as suspicions come at once.
   */
  async #spare(): Promise<void> {
    const { clock, stop } = this.services;
    if (!this.upstream.ready || clock.now() - this.#lookedAt > 2 * this.#sparedMs) {
      this.#sparedMs = firstSparedMs;
      return;
    }
    const due = this.#lookedAt + this.#sparedMs;
    this.#sparedMs = Math.min(longestPauseMs, 2 * this.#sparedMs);
    // If its circuit opens meanwhile, it is checked at once.
    while (!stop.aborted && this.upstream.ready && clock.now() < due) {
      this.#woken = false;
      await this.#rest(due - clock.now());
    }
  }

  #ready({ models }: JudgeCheck & { readonly state: 'ready' }): void {
    const { upstream } = this;
    const before = upstream.state;
    upstream.becameReady(models.map(({ id }) => id));
    if (before === 'ready') return;
    this.services.log('info', `${upstream.url} is ${before === 'open' ? 'back' : 'ready'}`);
    this.#said = '';
    this.services.onChange(upstream);
  }

  #notReady(found: Exclude<JudgeCheck, { readonly state: 'ready' }>): void {
    const { upstream } = this;
    upstream.notReady(
      found.found,
      found.state === 'wrong',
      found.models?.map(({ id }) => id),
    );
    const text = `${upstream.url} is not ready: ${found.found}${found.state === 'wrong' ? ` ${found.next}` : ''}`;
    if (text !== this.#said) this.services.log('warn', text);
    this.#said = text;
    this.services.onChange(upstream);
  }

  /** Waits, unless it was woken meanwhile. */
  async #rest(milliseconds: number): Promise<void> {
    if (this.#woken) return;
    const waking = new AbortController();
    const stop = (): void => waking.abort();
    this.#wake = stop;
    this.services.stop.addEventListener('abort', stop);
    await sleep(this.services.clock, milliseconds, waking.signal);
    this.services.stop.removeEventListener('abort', stop);
    this.#wake = null;
  }
}
