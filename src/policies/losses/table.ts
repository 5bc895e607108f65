/** Every loss that a policy can be told to learn by. Another one is a file beside this one, its specification in the union and its rule in the table. */
import { likelihood, type LikelihoodLoss } from './likelihood.js';
import type { LossRule } from './loss.js';
import { ratio, type RatioLoss } from './ratio.js';
import { reinforce, type ReinforceLoss } from './reinforce.js';

/** A loss as plain data, which can be sent to a trainer in another process. Weights, advantages, old and reference values come with the batch. */
export type LossSpec = LikelihoodLoss | ReinforceLoss | RatioLoss;
export type LossName = LossSpec['policy'];

const losses: { readonly [K in LossName]: LossRule<Extract<LossSpec, { readonly policy: K }>> } = {
  likelihood,
  reinforce,
  ratio,
};

export function ruleOf({ policy }: LossSpec): LossRule<LossSpec> {
  return losses[policy];
}
