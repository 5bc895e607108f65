/** The parts of a loss: a specification that is plain data, and the rule that computes it. */
import type { Value } from '../../../compute/graph/ir.js';
import type { KlTerm } from '../../../compute/nets/losses.js';

/** Inputs of a loss for each action besides its weight and its log-probability under the trained weights. */
export type LossInput = 'advantages' | 'old';

/** The distance to the frozen start that a loss adds, weighted like the rest. Null for none. */
export interface WithKl {
  readonly kl: KlTerm | null;
}

/** A gain with its derivative by the log-probability. */
export interface GainAt {
  readonly gain: number;
  readonly slope: number;
}

/** Actions drawn from Gaussians over arrays of numbers, for a loss that compares these and not their log-probabilities alone. */
export interface Gaussians {
  /** [B] in nats per element: the divergence of each action's Gaussian from that under the weights that sampled. */
  readonly moved: Value;
  /** [B, N, C] under the weights being trained, and under those that sampled. */
  readonly means: Value;
  readonly old: Value;
  /** [B, N, C] the actions themselves. */
  readonly drawn: Value;
  /** [B, 1, 1] the noise level of the model's input. */
  readonly level: Value;
  /** [B] the mean over the elements of an action, of [B, N, C]. */
  readonly average: (of: Value) => Value;
}

/** A loss is sum_a w_a (beta KL_a - gain_a) over the actions a of a batch. */
export interface LossRule<S> {
  /** In the order in which they are fed. A remote trainer is sent only these. */
  readonly reads: readonly LossInput[];
  /** Whether it compares the means of Gaussians with those under the weights that sampled, which a policy whose actions are tokens does not have. */
  readonly ofMeans?: true;
  /**
   * The gain of each action, [N] for [N] log-probabilities; `input` declares an [N] input, which must be one of `reads`. A method, so that rules for
   * different specifications fit into one table. `gaussians` are those of the actions, for a rule `ofMeans`.
   */
  gain(spec: S, logProbs: Value, input: (name: LossInput) => Value, gaussians?: Gaussians): Value;
  /**
   * The gain of one action, and its derivative, for a trainer that builds no graph of ours: it is told the derivative. `input` is asked for no
   * other names than those of `reads`. Absent for a rule `ofMeans`, whose gain is no function of log-probabilities.
   */
  at?(spec: S, logProb: number, input: (name: LossInput) => number): GainAt;
}
