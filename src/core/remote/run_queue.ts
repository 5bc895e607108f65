/** Runs take turns. Each sends its next item, however many items another run has waiting. */

export interface QueueLimits {
  /** Waiting items of one run. */
  readonly perRun: number;
  /** Waiting items of all runs. */
  readonly total: number;
  /** Items of one run in flight. */
  readonly inFlight: number;
}

/** An item whose turn it is. Call `end` when it is no longer in flight. */
export interface QueueTurn<T> {
  readonly item: T;
  readonly end: () => void;
}

interface Line<T> {
  readonly waiting: T[];
  inFlight: number;
}

/** Round robin over runs. */
export class RunQueue<T> {
  /** Runs with items waiting or in flight. The run with the next turn comes first. */
  readonly #lines = new Map<string, Line<T>>();
  #waiting = 0;

  constructor(readonly limits: QueueLimits) {}

  /** Waiting items. */
  get waiting(): number {
    return this.#waiting;
  }

  /** Items in flight and waiting, by run. */
  runs(): ReadonlyMap<string, { readonly inFlight: number; readonly waiting: number }> {
    return new Map(
      [...this.#lines].map(([run, { inFlight, waiting }]) => [run, { inFlight: inFlight, waiting: waiting.length }]),
    );
  }

  /**
   * Adds an item. `again`: it had its turn before, goes first among its run's items, and ignores the limits. Returns the item that there is
   * no room for: this one, or the last one of the run with the most waiting items.
   */
  push(run: string, item: T, again = false): T | null {
    const line = this.#lines.get(run) ?? { waiting: [], inFlight: 0 };
    if (!again && line.waiting.length >= this.limits.perRun) return item;
    this.#lines.set(run, line);
    if (again) line.waiting.unshift(item);
    else line.waiting.push(item);
    this.#waiting++;
    return again || this.#waiting <= this.limits.total ? null : this.#pushOut();
  }

  /** The next item that may go. Null if there is none. */
  take(mayGo: (item: T) => boolean): QueueTurn<T> | null {
    for (const [run, line] of this.#lines) {
      const at = line.inFlight < this.limits.inFlight ? line.waiting.findIndex(mayGo) : -1;
      if (at < 0) continue;
      const [item] = line.waiting.splice(at, 1);
      this.#waiting--;
      line.inFlight++;
      this.#lines.delete(run);
      this.#lines.set(run, line);
      let ended = false;
      const end = (): void => {
        if (ended) return;
        ended = true;
        line.inFlight--;
        this.#forgetIdle(run, line);
      };
      return { item, end };
    }
    return null;
  }

  /** Removes an item, which does not count as a turn. Returns false if it is not waiting. */
  drop(run: string, item: T): boolean {
    const line = this.#lines.get(run);
    const at = line?.waiting.indexOf(item) ?? -1;
    if (line === undefined || at < 0) return false;
    this.#remove(run, line, at);
    return true;
  }

  /** Removes and returns all waiting items that meet the condition. */
  dropAll(isOver: (item: T) => boolean): readonly T[] {
    const dropped: T[] = [];
    for (const [run, line] of [...this.#lines]) {
      for (let at = line.waiting.length - 1; at >= 0; at--) {
        if (isOver(line.waiting[at])) dropped.push(this.#remove(run, line, at));
      }
    }
    return dropped;
  }

  #pushOut(): T | null {
    let longest: readonly [string, Line<T>] | null = null;
    for (const each of this.#lines) {
      if (longest === null || each[1].waiting.length >= longest[1].waiting.length) longest = each;
    }
    return longest === null ? null : this.#remove(...longest, longest[1].waiting.length - 1);
  }

  #remove(run: string, line: Line<T>, at: number): T {
    const [item] = line.waiting.splice(at, 1);
    this.#waiting--;
    this.#forgetIdle(run, line);
    return item;
  }

  #forgetIdle(run: string, line: Line<T>): void {
    if (line.waiting.length + line.inFlight === 0) this.#lines.delete(run);
  }
}
