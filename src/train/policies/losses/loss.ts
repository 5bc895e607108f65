/** The parts of a loss: a specification as plain data, and the rule that computes it. */
import type { Value } from '../../../compute/graph/ir.js';
import type { KlTerm } from '../../../compute/nets/losses.js';

/** Inputs of a loss for each action, in addition to its weight and its log-probability under the trained weights. */
export type LossInput = 'advantages' | 'old';

/** The KL to the starting weights that a loss adds, with the same weights. Null for none. */
export interface WithKl {
  readonly kl: KlTerm | null;
}

/** A gain and its derivative with respect to the log-probability. */
export interface GainAt {
  readonly gain: number;
  readonly slope: number;
}

/** Gaussian actions, for a loss that compares means and not only log-probabilities. */
export interface Gaussians {
  /** [B], in nats per element: KL of each action's Gaussian to the Gaussian under the weights that sampled. */
  readonly moved: Value;
  /** Means [B, N, C] under the trained weights and under the weights that sampled. */
  readonly means: Value;
  readonly old: Value;
  /** The actions [B, N, C]. */
  readonly drawn: Value;
  /** The noise level [B, 1, 1] of the model's input. */
  readonly level: Value;
  /** Averages [B, N, C] over the elements of each action to [B]. */
  readonly average: (of: Value) => Value;
}

/** A loss is sum_a w_a (beta KL_a - gain_a) over the actions a of a batch. */
export interface LossRule<S> {
  /** Inputs in the order of the graph. A remote trainer gets only these. */
  readonly reads: readonly LossInput[];
  /**
   * Whether the loss compares means of Gaussians with those under the weights that sampled. Token policies have no such
   * means.
   */
  readonly ofMeans?: true;
  /**
   * The gain of each action, [N] for [N] log-probabilities. `input` declares an [N] input from `reads`. `gaussians` are
   * given for a rule `ofMeans`. A method, so that rules for different specifications fit into one table.
   */
  gain(spec: S, logProbs: Value, input: (name: LossInput) => Value, gaussians?: Gaussians): Value;
  /**
   * The gain of one action and its derivative, for a trainer that does not build our graph. `input` is called only with
   * names in `reads`. Absent for a rule `ofMeans`, whose gain is not a function of log-probabilities.
   */
  at?(spec: S, logProb: number, input: (name: LossInput) => number): GainAt;
}
