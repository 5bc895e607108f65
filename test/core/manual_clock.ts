import type { Clock } from '../../src/core/clock.js';

/** Time that stands still until it is moved. */
export class ManualClock implements Clock {
  #now = 0;
  readonly #alarms = new Set<{ readonly at: number; readonly callback: () => void }>();

  now(): number {
    return this.#now;
  }

  after(milliseconds: number, callback: () => void): () => void {
    const alarm = { at: this.#now + milliseconds, callback };
    this.#alarms.add(alarm);
    return () => this.#alarms.delete(alarm);
  }

  /** When the next callback is due; null where none is. */
  get next(): number | null {
    return this.#alarms.size === 0 ? null : Math.min(...[...this.#alarms].map(({ at }) => at));
  }

  /** Moves on, calling back what becomes due in its order, and lets promises settle. */
  async pass(milliseconds: number): Promise<void> {
    const end = this.#now + milliseconds;
    for (let next = this.next; next !== null && next <= end; next = this.next) {
      this.#now = next;
      for (const alarm of [...this.#alarms].filter(({ at }) => at <= next)) {
        this.#alarms.delete(alarm);
        alarm.callback();
      }
      await settle();
    }
    this.#now = end;
    await settle();
  }
}

/** Lets everything that waits for nothing but promises go on. */
export function settle(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}
