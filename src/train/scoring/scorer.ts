/** The loop's side of scoring: chunks are put to the judge while others are sampled. Then the iteration is settled. */
import type { JudgeItem, Outcome } from '../../rewards/score/types.js';

export interface Scorer {
  /** Starts scoring a chunk. The loop goes on sampling meanwhile. */
  begin(items: readonly JudgeItem[]): Promise<Outcome[]>;
  /**
   * Decides whether enough of an iteration is scored, and waits for the judge if it is not. Raises EndpointError after the longest wait, so that the
   * run can checkpoint, and JudgeLimitError where judges may be asked no more.
   */
  settle(items: readonly JudgeItem[], outcomes: readonly Outcome[]): Promise<Outcome[]>;
  /** Ends connections and records. */
  close(): Promise<void>;
}

/** Chunks that are being scored while others are sampled. Until it has ended, the scorer must stay open. */
export class ScoringInProgress {
  readonly #begun: Promise<Outcome[]>[] = [];
  readonly #errors: unknown[] = [];

  constructor(private readonly scorer: Scorer) {}

  /** Starts scoring a chunk. Raises what an earlier chunk has failed with meanwhile. */
  begin(items: readonly JudgeItem[]): void {
    if (this.#errors.length > 0) throw this.#errors[0];
    const begun = this.scorer.begin(items);
    // A failure is raised by the next chunk or at the end; until then it must not count as unhandled.
    begun.catch((error: unknown) => this.#errors.push(error));
    this.#begun.push(begun);
  }

  /** Waits for all chunks; gives what failed first in time, which is `failure` where no chunk had failed before. */
  async firstError(failure: unknown): Promise<unknown> {
    this.#errors.push(failure);
    await Promise.allSettled(this.#begun);
    return this.#errors[0];
  }

  /** The outcomes of all chunks, in their order. Raises the first error in time, when all have settled. */
  async outcomes(): Promise<Outcome[]> {
    await Promise.allSettled(this.#begun);
    if (this.#errors.length > 0) throw this.#errors[0];
    return (await Promise.all(this.#begun)).flat();
  }
}
