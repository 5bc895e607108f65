/** Sessions that hold packed weights which change between uses. */
import { SessionPool, type WeightData } from './pool.js';
import type { SessionOptions } from './session.js';
import { SessionCache } from './session_cache.js';

/**
 * Lends sessions whose products hold the weights of one version packed: the first use of another version throws them away before it
 * makes its own, so that no two packed copies lie there. Weights are changed in place, and nothing can be seen by them: every use
 * says which version it means. Uses wait for each other.
 */
export class PackedSessions {
  #held: { readonly version: string; readonly sessions: SessionCache } | null = null;
  #last: Promise<unknown> = Promise.resolve();

  constructor(
    readonly name: string,
    readonly options: SessionOptions,
  ) {}

  /** `weights` may not change before `work` has settled. Raises what the work raises. */
  use<T>(version: string, weights: WeightData, work: (sessions: SessionCache) => Promise<T>): Promise<T> {
    const turn = this.#last.then(async () => {
      if (this.#held?.version !== version) {
        await this.#throwAway();
        this.#held = {
          version,
          sessions: new SessionCache(this.name, this.options, new SessionPool(weights)),
        };
      }
      return work(this.#held.sessions);
    });
    this.#last = turn.catch(() => {});
    return turn;
  }

  async dispose(): Promise<void> {
    await this.#last;
    await this.#throwAway();
  }

  async #throwAway(): Promise<void> {
    const held = this.#held;
    this.#held = null;
    await held?.sessions.dispose();
  }
}
