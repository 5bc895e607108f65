/** When a run is given up because it diverged: its loss is not finite any more, and nothing that it does will mend that. */
import type { Metrics } from '../run/metrics.js';

/** The metric of every kind of training that an optimizer step descends; absent where an iteration took no step. */
export const LOSS = 'policy/loss';

/** So many losses that are not finite, one after the other, end a run: one or two can be a batch's. */
export const LOST_AFTER = 3;

/** Watches the loss over the iterations of one attempt. */
export class Divergence {
  #lost: number[] = [];

  /**
   * Takes an iteration's metrics. Returns why the run is to end as failed, or null. An iteration without a loss, where no group had any spread
   * for example, neither counts nor ends a series.
   */
  note(iteration: number, metrics: Metrics): string | null {
    const loss = metrics[LOSS] as number | undefined;
    if (loss === undefined) return null;
    this.#lost = Number.isFinite(loss) ? [] : [...this.#lost, iteration];
    if (this.#lost.length < LOST_AFTER) return null;
    return `the loss of iterations ${this.#lost.join(', ')} is not finite (${LOSS} is ${loss}): the run has diverged`;
  }
}
