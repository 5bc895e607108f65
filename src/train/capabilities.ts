/** Rejects a run whose policy lacks a capability that the settings require. Only this module reads capabilities. */
import { ConfigError } from '../core/errors.js';
import type { LossName, LossSpec } from './policies/losses/table.js';
import type { Capabilities } from './policies/policy.js';

/** The capabilities that a run requires of its policy. */
export interface PolicyRequirements {
  /** The loss that it learns with. Absent if it has none. */
  readonly loss?: LossSpec;
  /** Whether held-out evaluation uses the moving average of the weights. */
  readonly average?: boolean;
  /** Whether the environment is conditioned on the policy's hidden states. */
  readonly hiddenStates?: boolean;
}

/** For each loss: the settings that require it, and settings that would use another loss. */
const LOSSES: Readonly<Record<LossName, { readonly cause: string; readonly instead: string | null }>> = {
  likelihood: { cause: "algorithm.type 'sft'", instead: null },
  reinforce: {
    cause: 'one optimizer step an iteration without algorithm.clip_range',
    instead: 'set algorithm.clip_range',
  },
  ratio: {
    cause: 'algorithm.clip_range, or more than one optimizer step an iteration,',
    instead: 'set algorithm.clip_range to null, and algorithm.inner_epochs and algorithm.minibatches to 1',
  },
  cispo: { cause: "algorithm.surrogate 'cispo'", instead: "set algorithm.surrogate to 'ppo'" },
  nft: { cause: "algorithm.surrogate 'nft'", instead: "set algorithm.surrogate to 'ppo'" },
};

/** Raises ConfigError for the first unsupported requirement. */
export function requireCapabilities(
  can: Capabilities,
  { loss, average = false, hiddenStates = false }: PolicyRequirements,
): void {
  const refuse = (problem: string, instead: string | null): never => {
    const other = 'choose another policy.trainer';
    const next = instead === null ? other : `${instead}, or ${other}`;
    throw new ConfigError(problem, { where: 'policy.trainer', next: `${next[0].toUpperCase()}${next.slice(1)}.` });
  };
  if (loss !== undefined && !can.losses.includes(loss.policy)) {
    const { cause, instead } = LOSSES[loss.policy];
    refuse(`${cause} needs the loss '${loss.policy}'; this trainer has ${can.losses.join(', ')}`, instead);
  }
  if ((loss?.kl ?? null) !== null && !can.reference) {
    refuse(
      'algorithm.kl_coeff needs the initial weights, which this trainer does not keep',
      'set algorithm.kl_coeff to 0',
    );
  }
  if (average && !can.average) {
    refuse(
      'held-out evaluation needs the moving average of the weights, which this trainer does not keep',
      "set validation.weights to 'current'",
    );
  }
  if (hiddenStates && !can.hiddenStates) {
    refuse("the environment needs the policy's hidden states, which this trainer does not return", null);
  }
}
