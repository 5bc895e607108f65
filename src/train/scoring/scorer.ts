/**
 * The training loop's interface for scoring. Chunks are scored while others are sampled, and then the iteration is
 * settled.
 */
import type { JudgeItem, Outcome } from '../../rewards/score/types.js';

export interface Scorer {
  /** Starts scoring a chunk, while the loop continues to sample. */
  begin(items: readonly JudgeItem[]): Promise<Outcome[]>;
  /**
   * Decides whether enough of an iteration is scored, and waits for the judge if it is not. Raises EndpointError after
   * the longest wait, so that the run can checkpoint, and JudgeLimitError when no more judge requests are allowed.
   */
  settle(items: readonly JudgeItem[], outcomes: readonly Outcome[]): Promise<Outcome[]>;
  /** Closes connections and records. */
  close(): Promise<void>;
}

/** Chunks that are scored while others are sampled. The scorer must stay open until this has ended. */
export class ScoringInProgress {
  readonly #begun: Promise<Outcome[]>[] = [];
  readonly #errors: unknown[] = [];

  constructor(private readonly scorer: Scorer) {}

  /** Starts scoring a chunk. Raises the error of an earlier chunk that has failed meanwhile. */
  begin(items: readonly JudgeItem[]): void {
    if (this.#errors.length > 0) throw this.#errors[0];
    const begun = this.scorer.begin(items);
    // The next chunk or the end raises a failure. Until then it must not count as unhandled.
    begun.catch((error: unknown) => this.#errors.push(error));
    this.#begun.push(begun);
  }

  /** Waits for all chunks. Returns the first failure in time, which is `failure` if no chunk had failed before. */
  async firstError(failure: unknown): Promise<unknown> {
    this.#errors.push(failure);
    await Promise.allSettled(this.#begun);
    return this.#errors[0];
  }

  /** The outcomes of all chunks, in order. Raises the first error in time once all have settled. */
  async outcomes(): Promise<Outcome[]> {
    await Promise.allSettled(this.#begun);
    if (this.#errors.length > 0) throw this.#errors[0];
    return (await Promise.all(this.#begun)).flat();
  }
}
