import type { Clock } from '../core/clock.js';

const SAID_EVERY_MS = 30_000;
/** The first word of a wait comes after so long: a pause that is over by then is nobody's concern. */
const SAID_AFTER_MS = 3000;

/** Informed when the server that everybody waits for is away. */
export interface OutageListener {
  /** Called at intervals while it is away, with what was found and for how long it has been away. */
  readonly onWaiting?: ((found: string, waitedS: number) => void) | undefined;
  /** Called when it answers again after that. */
  readonly onBack?: (() => void) | undefined;
}

/** How long the awaited server has been away, reported from time to time. */
export class Outage {
  #since: number | null = null;
  #said: number | null = null;

  constructor(
    private readonly clock: Clock,
    private readonly listener: OutageListener,
  ) {}

  /** It did not answer. */
  goesOn(found: string): void {
    const now = this.clock.now();
    const since = (this.#since ??= now);
    if (now - since < SAID_AFTER_MS || (this.#said !== null && now - this.#said < SAID_EVERY_MS)) return;
    this.#said = now;
    this.listener.onWaiting?.(found, Math.round((now - since) / 1000));
  }

  /** It answered. */
  isOver(): void {
    const told = this.#said !== null;
    this.#since = null;
    this.#said = null;
    if (told) this.listener.onBack?.();
  }
}
