import { setMaxListeners } from 'node:events';
import type { Clock } from './clock.js';

/**
 * A time limit with an abort signal, inside whatever limits its parent. Made by hand because a limit is set for every request:
 * it has to let go of its parent when the request is over.
 */
export class Deadline {
  readonly #controller = new AbortController();
  readonly #end: number;
  readonly #dispose: () => void;

  constructor(
    readonly clock: Clock,
    milliseconds: number,
    parent?: AbortSignal,
  ) {
    const abort = (): void => this.#controller.abort();
    this.#end = clock.now() + milliseconds;
    const cancel = clock.after(milliseconds, abort);
    if (parent !== undefined) {
      // As many requests as are under way hang on one parent, which is no leak.
      setMaxListeners(0, parent);
      parent.addEventListener('abort', abort);
    }
    this.#dispose = () => {
      cancel();
      parent?.removeEventListener('abort', abort);
    };
    if (parent?.aborted === true) abort();
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  get over(): boolean {
    return this.#controller.signal.aborted;
  }

  remainingMs(): number {
    return Math.max(0, this.#end - this.clock.now());
  }

  /** Has to be called when what was limited is over. */
  dispose(): void {
    this.#dispose();
  }
}
