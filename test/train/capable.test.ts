import { expect, it } from 'vitest';
import type { Capabilities } from '../../src/train/policies/policy.js';
import { requireCapabilities, type PolicyRequirements } from '../../src/train/capabilities.js';

const kl = { coefficient: 0.1, estimator: 'k3' } as const;
const all: Capabilities = {
  losses: ['likelihood', 'reinforce', 'ratio'],
  reference: true,
  average: true,
  hiddenStates: true,
};
const everything: PolicyRequirements = { loss: { policy: 'ratio', clip: 0.2, kl }, average: true, hiddenStates: true };

it('lets a run open whose policy can do all that it asks for, and one that asks for nothing', () => {
  expect(() => requireCapabilities(all, everything)).not.toThrow();
  expect(() =>
    requireCapabilities(
      { losses: ['reinforce'], reference: false, average: false, hiddenStates: false },
      {
        loss: { policy: 'reinforce', kl: null },
      },
    ),
  ).not.toThrow();
});

it.each([
  [
    'a clipped ratio',
    { losses: ['likelihood', 'reinforce'] },
    everything,
    "algorithm.clip_range, or more than one optimizer step an iteration, needs the loss 'ratio'; this trainer has likelihood, reinforce",
    'Set algorithm.clip_range to null, and algorithm.inner_epochs and algorithm.minibatches to 1, or choose another policy.trainer.',
  ],
  [
    'labels',
    { losses: ['ratio'] },
    { loss: { policy: 'likelihood' } },
    "algorithm.type 'sft' needs the loss 'likelihood'; this trainer has ratio",
    'Choose another policy.trainer.',
  ],
  [
    'KL to the start',
    { reference: false },
    everything,
    'algorithm.kl_coeff measures the distance to the starting weights, which this trainer does not keep',
    'Set algorithm.kl_coeff to 0, or choose another policy.trainer.',
  ],
  [
    'averaged weights',
    { average: false },
    everything,
    'held-out evaluation samples from the moving average of the weights, which this trainer does not keep',
    "Set validation.weights to 'current', or choose another policy.trainer.",
  ],
  [
    'hidden states',
    { hiddenStates: false },
    everything,
    "the environment reads the policy's hidden states, which this trainer does not give",
    'Choose another policy.trainer.',
  ],
] as [string, Partial<Capabilities>, PolicyRequirements, string, string][])(
  'refuses %s',
  (_name, lacking, demands, message, next) => {
    expect(() => requireCapabilities({ ...all, ...lacking }, demands)).toThrow(
      expect.objectContaining({ code: 'config', message, where: 'policy.trainer', next }),
    );
  },
);
