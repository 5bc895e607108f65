/** How much each trained action weighs in the loss of a minibatch. Pure functions. */
import type { GrpoSettings } from '../schema/algorithm.js';

export type Aggregation = GrpoSettings['aggregation'];

/** What a minibatch is a part of. */
export interface WholeIteration {
  /** Trained actions of the iteration. */
  readonly actions: number;
  readonly minibatches: number;
  /** The largest number of actions in an answer; null if all answers have equally many. */
  readonly longest: number | null;
}

/**
 * The weight of one trained action of an answer with `own` trained actions. `actions` and `answers` count those of the minibatch that are trained, and
 * answers that have any.
 */
type WeightRule = (
  own: number,
  minibatch: { readonly actions: number; readonly answers: number },
  iteration: WholeIteration,
) => number;

/**
 * - token: the mean over all trained actions of the minibatch.
 * - answer: the mean over each answer, then over the answers (Shao et al., "DeepSeekMath", 2024, arXiv 2402.03300, equation 3).
 * - dr_grpo: the sum over answers and actions by a constant, so that long answers weigh as much per action as short ones in every minibatch (Liu et
 *   al., "Understanding R1-Zero-Like Training", 2025, arXiv 2503.20783).
 * - dapo: the sum over the minibatch by the mean number of actions in a minibatch of the iteration (Yu et al., "DAPO", 2025, arXiv 2503.14476).
 */
const rules: Readonly<Record<Aggregation, WeightRule>> = {
  token: (_own, { actions }) => 1 / actions,
  answer: (own, { answers }) => 1 / (own * answers),
  dr_grpo: (own, { answers }, { longest }) => 1 / ((longest ?? own) * answers),
  dapo: (_own, _minibatch, { actions, minibatches }) => minibatches / actions,
};

/** The weight of a trained action of each answer, for numbers of trained actions by group and answer; 0 for an answer without any. */
export function actionWeights(
  aggregation: Aggregation,
  trained: readonly (readonly number[])[],
  iteration: WholeIteration,
): number[][] {
  const all = trained.flat();
  const minibatch = {
    actions: all.reduce((sum, own) => sum + own, 0),
    answers: all.filter((own) => own > 0).length,
  };
  return trained.map((group) => group.map((own) => (own === 0 ? 0 : rules[aggregation](own, minibatch, iteration))));
}
