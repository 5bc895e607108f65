/**
 * Limits how much happens at once, where some work takes more slots than other work (p-limit only counts); waiting work is served in order of
 * arrival.
 */
export class Semaphore {
  #free: number;
  readonly #waiting: { readonly slots: number; readonly start: () => void }[] = [];

  constructor(private readonly slots: number) {
    this.#free = slots;
  }

  /**
   * Runs the work when as many slots are free as it takes; one that takes more than there are gets all of them. The work itself looks at
   * its abort signal: waiting here is never given up early.
   */
  async run<T>(work: () => Promise<T>, slots = 1): Promise<T> {
    const taken = Math.min(slots, this.slots);
    if (this.#waiting.length === 0 && taken <= this.#free) this.#free -= taken;
    else await new Promise<void>((start) => this.#waiting.push({ slots: taken, start }));
    try {
      return await work();
    } finally {
      this.#free += taken;
      this.#serve();
    }
  }

  #serve(): void {
    while (this.#waiting.length > 0 && this.#waiting[0].slots <= this.#free) {
      const { slots, start } = this.#waiting.splice(0, 1)[0];
      this.#free -= slots;
      start();
    }
  }
}
