/** Two answers to a prompt, of which one is to be likelier and one less likely, and an optimizer for them. */
import { soloPeers } from '../../../src/core/group/peers.js';
import type { PolicyModel } from '../../../src/models/adapters/policy_model.js';
import { Learner, type LearnerOptions } from '../../../src/train/policies/tokens/learner.js';
import { TokenPolicy, type TokenPolicyOptions } from '../../../src/train/policies/tokens/policy.js';

export const optimizer = {
  learning_rate: 0.01,
  betas: [0.9, 0.999] as [number, number],
  eps: 1e-8,
  weight_decay: 0,
  max_grad_norm: 1,
  per_device_batch_size: 2,
  schedule: 'constant' as const,
  min_learning_rate_ratio: 0,
  gradient_checkpointing: false,
  ema_decay: null,
};

export const group = {
  prompt: { tokens: { ids: [1, 5, 9] } },
  answers: [{ ids: Int32Array.from([4, 8, 2]) }, { ids: Int32Array.from([7, 7, 3]) }],
};
export const lesson = {
  ...group,
  targets: group.answers.map(({ ids }, i) => ({
    weights: new Float32Array(ids.length).fill(1),
    advantages: i === 0 ? 1 : -1,
    reference: null,
    old: null,
  })),
};

const session = { threads: 1 };

export function learnerOf(model: PolicyModel, options: Partial<LearnerOptions> = {}): Learner {
  return new Learner(model, {
    temperature: 1,
    separateVocabularies: false,
    microBatch: 2,
    gradientCheckpointing: false,
    session,
    peers: soloPeers,
    ...options,
  });
}

export function tokenPolicy<P extends { ids: readonly number[] }>(
  model: PolicyModel<P>,
  options: Partial<TokenPolicyOptions<P>> = {},
): TokenPolicy<P> {
  return new TokenPolicy({
    model,
    optimizer,
    contextSize: 32,
    constrained: false,
    separateVocabularies: false,
    learner: { temperature: 1, microBatch: 2, gradientCheckpointing: false },
    sessions: { sampling: session, learning: session },
    keepReference: true,
    ...options,
  });
}
