/** Refuses a run when it opens if its policy cannot do what the settings require. Only this module looks at a policy's capabilities. */
import { ConfigError } from '../core/errors.js';
import type { LossName, LossSpec } from './policies/losses/table.js';
import type { Capabilities } from './policies/policy.js';

/** What a run needs from its policy. */
export interface PolicyRequirements {
  /** The loss that it learns by; absent if it has none. */
  readonly loss?: LossSpec;
  /** Whether held-out evaluation uses the moving average of the weights. */
  readonly average?: boolean;
  /** Whether the environment is conditioned on the policy's hidden states. */
  readonly hiddenStates?: boolean;
}

/** For each loss, the settings that require it, and those that would use another one. */
const LOSSES: Readonly<Record<LossName, { readonly asking: string; readonly instead: string | null }>> = {
  likelihood: { asking: "algorithm.type 'sft'", instead: null },
  reinforce: {
    asking: 'one optimizer step an iteration without algorithm.clip_range',
    instead: 'set algorithm.clip_range',
  },
  ratio: {
    asking: 'algorithm.clip_range, or more than one optimizer step an iteration,',
    instead: 'set algorithm.clip_range to null, and algorithm.inner_epochs and algorithm.minibatches to 1',
  },
  cispo: { asking: "algorithm.surrogate 'cispo'", instead: "set algorithm.surrogate to 'ppo'" },
  nft: { asking: "algorithm.surrogate 'nft'", instead: "set algorithm.surrogate to 'ppo'" },
};

/** Raises ConfigError for the first demand that is not met. */
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
    const { asking, instead } = LOSSES[loss.policy];
    refuse(`${asking} needs the loss '${loss.policy}'; this trainer has ${can.losses.join(', ')}`, instead);
  }
  if ((loss?.kl ?? null) !== null && !can.reference) {
    refuse(
      'algorithm.kl_coeff measures the distance to the starting weights, which this trainer does not keep',
      'set algorithm.kl_coeff to 0',
    );
  }
  if (average && !can.average) {
    refuse(
      'held-out evaluation samples from the moving average of the weights, which this trainer does not keep',
      "set validation.weights to 'current'",
    );
  }
  if (hiddenStates && !can.hiddenStates) {
    refuse("the environment reads the policy's hidden states, which this trainer does not give", null);
  }
}
