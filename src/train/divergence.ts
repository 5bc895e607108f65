/** When to give up a run that diverged: its loss is no longer finite, and further training cannot repair that. */
import type { Metrics } from '../run/metrics.js';

/** The metric that optimizer steps descend, in every kind of training; absent if an iteration took no step. */
export const LOSS = 'policy/loss';

/** This many non-finite losses in a row end a run: one or two can be due to a batch. */
export const NON_FINITE_LIMIT = 3;

/** Watches the loss over the iterations of one attempt. */
export class DivergenceWatch {
  #lost: number[] = [];

  /**
   * Takes an iteration's metrics. Returns why the run should end as failed, or null. An iteration without a loss, for example because no group had
   * any spread, neither counts nor ends a series.
   */
  note(iteration: number, metrics: Metrics): string | null {
    const loss = metrics[LOSS] as number | undefined;
    if (loss === undefined) return null;
    this.#lost = Number.isFinite(loss) ? [] : [...this.#lost, iteration];
    if (this.#lost.length < NON_FINITE_LIMIT) return null;
    return `the loss of iterations ${this.#lost.join(', ')} is not finite (${LOSS} is ${loss}): the run has diverged`;
  }
}
