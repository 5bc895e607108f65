import type { Clock } from './clock.js';
import { allowManyListeners } from './listeners.js';

/**
 * A time limit inside whatever limits its parent, an abort signal or another limit. Made by hand because one is set for every request:
 * it has to let go of its parent when the request is over, and makes a signal only where one is asked for.
 */
export class Deadline {
  readonly #end: number;
  readonly #dispose: () => void;
  readonly #onOver = new Set<() => void>();
  #over = false;
  #controller: AbortController | null = null;

  constructor(
    readonly clock: Clock,
    milliseconds: number,
    parent?: AbortSignal | Deadline,
  ) {
    const end = (): void => this.#finish();
    this.#end = clock.now() + milliseconds;
    const cancel = clock.after(milliseconds, end);
    const letGo = parent === undefined ? () => {} : hangOn(parent, end);
    this.#dispose = () => {
      cancel();
      letGo();
    };
  }

  get signal(): AbortSignal {
    if (this.#controller === null) {
      this.#controller = new AbortController();
      if (this.#over) this.#controller.abort();
    }
    return this.#controller.signal;
  }

  get over(): boolean {
    return this.#over;
  }

  remainingMs(): number {
    return Math.max(0, this.#end - this.clock.now());
  }

  /** Calls back once when the time is over or the parent ends it, at once if that has happened; the returned function cancels it. */
  onOver(callback: () => void): () => void {
    if (this.#over) callback();
    else this.#onOver.add(callback);
    return () => void this.#onOver.delete(callback);
  }

  /** Call when the limited work is over. */
  dispose(): void {
    this.#dispose();
  }

  #finish(): void {
    if (this.#over) return;
    this.#over = true;
    this.#controller?.abort();
    for (const callback of this.#onOver) callback();
    this.#onOver.clear();
  }
}

function hangOn(parent: AbortSignal | Deadline, end: () => void): () => void {
  if (parent instanceof Deadline) return parent.onOver(end);
  // All requests under way listen to one parent, which is not a leak.
  allowManyListeners(parent);
  parent.addEventListener('abort', end);
  if (parent.aborted) end();
  return () => parent.removeEventListener('abort', end);
}
