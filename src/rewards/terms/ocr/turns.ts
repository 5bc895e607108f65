/** Lends a few things to many users: each thing to one at a time, waiting users in the order of arrival. */
import { allowManyListeners } from '../../../core/listeners.js';

export class Turns<T extends object> {
  readonly #free: T[];
  readonly #waiting = new Set<(thing: T) => void>();

  constructor(things: readonly T[]) {
    this.#free = [...things];
  }

  /** Does the work with one of the things; rejects with the signal's reason where that comes before a turn does. */
  async take<R>(work: (thing: T) => Promise<R>, signal?: AbortSignal): Promise<R> {
    signal?.throwIfAborted();
    const thing = this.#free.pop() ?? (await this.#turn(signal));
    try {
      return await work(thing);
    } finally {
      this.#giveBack(thing);
    }
  }

  #turn(signal?: AbortSignal): Promise<T> {
    return new Promise((resolve, reject) => {
      const abort = (): void => {
        this.#waiting.delete(serve);
        reject(signal?.reason as Error);
      };
      const serve = (thing: T): void => {
        signal?.removeEventListener('abort', abort);
        resolve(thing);
      };
      this.#waiting.add(serve);
      if (signal === undefined) return;
      // A whole iteration may wait on one signal, which is not a leak.
      allowManyListeners(signal);
      signal.addEventListener('abort', abort, { once: true });
    });
  }

  #giveBack(thing: T): void {
    for (const next of this.#waiting) {
      this.#waiting.delete(next);
      next(thing);
      return;
    }
    this.#free.push(thing);
  }
}
