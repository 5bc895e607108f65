/** The parts of a loss: a specification that is plain data, and the rule that computes it. */
import type { Value } from '../../graph/ir.js';
import type { KlTerm } from '../../nets/losses.js';

/** What a loss may read for each action besides its weight and its log-probability under the weights being trained. */
export type LossInput = 'advantages' | 'old';

/** The distance to the frozen start that a loss adds, weighted like the rest; null for none. */
export interface WithKl {
  readonly kl: KlTerm | null;
}

/** A gain with its derivative by the log-probability. */
export interface GainAt {
  readonly gain: number;
  readonly slope: number;
}

/** A loss is sum_a w_a (beta KL_a - gain_a) over the actions a of a batch. */
export interface LossRule<S> {
  /** In the order in which they are fed. A remote trainer is sent only these. */
  readonly reads: readonly LossInput[];
  /**
   * The gain of each action, [N] for [N] log-probabilities; `input` declares an [N] input, which must be one of `reads`. A method, so that rules for
   * different specifications fit into one table.
   */
  gain(spec: S, logProbs: Value, input: (name: LossInput) => Value): Value;
  /**
   * The gain of one action, and its derivative, for a trainer that builds no graph of ours: it is told the derivative. `input` is asked for no
   * other names than those of `reads`.
   */
  at(spec: S, logProb: number, input: (name: LossInput) => number): GainAt;
}
