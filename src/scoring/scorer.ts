/** The loop's side of scoring: chunks are put to the judge while others are sampled; then the iteration is settled. */
import type { JudgeItem, Outcome } from '../rewards/score/types.js';

export interface Scorer {
  /** Starts scoring a chunk; the loop goes on sampling meanwhile. */
  begin(items: readonly JudgeItem[]): Promise<Outcome[]>;
  /**
   * Decides whether enough of an iteration is scored, and waits for the judge if it is not. Raises EndpointError after the longest wait, so that the
   * run can checkpoint, and JudgeLimitError where judges may be asked no more.
   */
  settle(items: readonly JudgeItem[], outcomes: readonly Outcome[]): Promise<Outcome[]>;
  /** Ends connections and records. */
  close(): Promise<void>;
}
