/** Watches one upstream: checks it until it is ready, and again when it fails. */
import type { Clock } from '../../core/clock.js';
import { sleep } from '../../core/clock.js';
import type { JudgeCheck } from '../judge/readiness.js';
import type { Upstream } from './upstream.js';

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
