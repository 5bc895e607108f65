/** Limits concurrent work whose parts need different numbers of slots (p-limit only counts). Waiting work is served in order of arrival. */
export class Semaphore {
  #free: number;
  readonly #waiting: { readonly slots: number; readonly start: () => void }[] = [];

  constructor(private readonly slots: number) {
    this.#free = slots;
  }

  /**
   * Runs the work when enough slots are free. Work that needs more than all slots gets all of them. The work checks its own abort signal:
   * waiting here is never canceled.
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
