/**
 * All losses. To add one, write a file beside this one, add its specification to the union, and add its rule to the
 * table.
 */
import { cispo, type CispoLoss } from './cispo.js';
import { likelihood, type LikelihoodLoss } from './likelihood.js';
import type { LossRule } from './loss.js';
import { nft, type NftLoss } from './nft.js';
import { ratio, type RatioLoss, reinforce, type ReinforceLoss } from './ratio.js';

/**
 * A loss as plain data that can be sent to a trainer in another process. Weights, advantages, old and reference values
 * are part of the batch.
 */
export type LossSpec = LikelihoodLoss | ReinforceLoss | RatioLoss | CispoLoss | NftLoss;
export type LossName = LossSpec['policy'];

const losses: { readonly [K in LossName]: LossRule<Extract<LossSpec, { readonly policy: K }>> } = {
  likelihood,
  reinforce,
  ratio,
  cispo,
  nft,
};

export function ruleOf({ policy }: LossSpec): LossRule<LossSpec> {
  return losses[policy];
}
