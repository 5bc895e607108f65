/** One judge behind the gateway: whether it may be asked, how much, and the checks that decide this. */
import { type Clock, sleep } from '../../core/clock.js';
import { Member } from '../../core/remote/member.js';
import type { JudgeCheck, ListedModel } from '../judge/readiness.js';

/**
 * `starting`: not ready since the gateway started. `ready`: may be asked. `open`: was ready and failed, and is not asked until it passes a
 * readiness check again.
 */
export type UpstreamState = 'starting' | 'ready' | 'open';

export interface UpstreamServices {
  readonly clock: Clock;
  /** Requests in flight, at most. */
  readonly cap: number;
  /** Failures in a row after which it is not asked. */
  readonly breakerFailures: number;
  /** Whether it lists the model and completes a request with two images. Never rejects. */
  readonly check: (upstream: Upstream) => Promise<JudgeCheck>;
  /** Called after every change of its state. */
  readonly onChange: (upstream: Upstream) => void;
  readonly log: (level: 'info' | 'warn', text: string) => void;
}

const MIN_PAUSE_MS = 500;
const MAX_PAUSE_MS = 10_000;
/** Pause after a check that found a suspicion unfounded. Doubled each time, up to `MAX_PAUSE_MS`. */
const MIN_SPARED_MS = 1_000;

export class Upstream extends Member {
  readonly #services: UpstreamServices;
  #state: UpstreamState = 'starting';
  #found = 'not checked yet';
  #isWrong = false;
  #models: readonly ListedModel[] = [];
  /** Ends the pause before the next check. */
  #wake: (() => void) | null = null;
  #isWoken = false;
  #logged = '';
  #checkedAt = -Infinity;
  #sparedMs = MIN_SPARED_MS;

  /** @param url base URL. */
  constructor(url: string, services: UpstreamServices) {
    const { clock, cap, breakerFailures: failures } = services;
    // Only a readiness check closes its breaker again.
    super(url, clock, { cap, failures, doubts: failures, pauseMs: Infinity });
    this.#services = services;
  }

  get state(): UpstreamState {
    return this.#state;
  }

  get ready(): boolean {
    return this.#state === 'ready';
  }

  /** Why it is not ready. */
  get found(): string {
    return this.#found;
  }

  /** Whether waiting cannot help: it serves another model, rejects the key, or is not a judge server. */
  get isWrong(): boolean {
    return this.#isWrong;
  }

  /** The models that it listed last. */
  get models(): readonly ListedModel[] {
    return this.#models;
  }

  serves(model: string): boolean {
    return this.ready && this.#models.some(({ id }) => id === model);
  }

  /** Takes the result of a readiness check. */
  checked(check: JudgeCheck): void {
    const before = this.#state;
    this.#models = check.models ?? [];
    if (check.state === 'ready') {
      this.#state = 'ready';
      this.#found = '';
      this.#isWrong = false;
      this.works();
      if (before === 'ready') return;
      this.#log('info', `is ${before === 'open' ? 'back' : 'ready'}`);
    } else {
      if (before === 'ready') this.#state = 'open';
      this.#found = check.found;
      this.#isWrong = check.state === 'wrong';
      this.#log('warn', `is not ready: ${check.found}${this.#isWrong ? ` ${check.next}` : ''}`);
    }
    this.#services.onChange(this);
  }

  /** Checks its readiness now. */
  wake(): void {
    this.#isWoken = true;
    this.#wake?.();
  }

  /** Checks its readiness whenever that is in doubt, until the signal aborts. */
  async watch(stop: AbortSignal): Promise<void> {
    let pause = MIN_PAUSE_MS;
    while (!stop.aborted) {
      await this.#spare(stop);
      if (stop.aborted) return;
      this.#isWoken = false;
      const isSuspected = this.ready;
      const check = await this.#services.check(this);
      if (stop.aborted) return;
      if (isSuspected) this.#checkedAt = this.clock.now();
      if (check.state === 'ready') {
        pause = MIN_PAUSE_MS;
        this.checked(check);
        await this.#rest(Infinity, stop);
        continue;
      }
      // If a serving upstream turned the check away, it is checked again: one client that fills a server must not take it from the others.
      if (check.busy !== true || !this.ready) this.checked(check);
      await this.#rest(pause, stop);
      pause = Math.min(MAX_PAUSE_MS, pause * 2);
    }
  }

  /** Several requests in a row failed, possibly by their own fault. The upstream stays in use while it is checked. */
  protected override suspected(): void {
    if (this.ready) this.wake();
  }

  protected override opened(found: string): void {
    if (!this.ready) return;
    this.#state = 'open';
    this.#found = `${this.breaker.failures} requests in a row failed, the last one: ${found}`;
    this.#log('warn', `is skipped: ${this.#found}`);
    this.#services.onChange(this);
    this.wake();
  }

  /**
   * A check costs the judge a completion with two images. A run whose requests all fail would cause one check after another, however well the
   * judge works. So the pause between checks of a serving upstream grows as long as suspicions return at once.
   */
  async #spare(stop: AbortSignal): Promise<void> {
    if (!this.ready || this.clock.now() - this.#checkedAt > 2 * this.#sparedMs) {
      this.#sparedMs = MIN_SPARED_MS;
      return;
    }
    const due = this.#checkedAt + this.#sparedMs;
    this.#sparedMs = Math.min(MAX_PAUSE_MS, 2 * this.#sparedMs);
    // If its breaker opens meanwhile, it is checked at once.
    while (!stop.aborted && this.ready && this.clock.now() < due) {
      this.#isWoken = false;
      await this.#rest(due - this.clock.now(), stop);
    }
  }

  /** Waits, unless it was woken meanwhile. */
  async #rest(milliseconds: number, stop: AbortSignal): Promise<void> {
    if (this.#isWoken) return;
    const waking = new AbortController();
    const wake = (): void => waking.abort();
    this.#wake = wake;
    stop.addEventListener('abort', wake);
    await sleep(this.clock, milliseconds, waking.signal);
    stop.removeEventListener('abort', wake);
    this.#wake = null;
  }

  #log(level: 'info' | 'warn', text: string): void {
    if (text !== this.#logged) this.#services.log(level, `${this.url} ${text}`);
    this.#logged = text;
  }
}
