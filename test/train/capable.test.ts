import { expect, it } from 'vitest';
import type { Capabilities } from '../../src/train/policies/policy.js';
import { requireCapabilities, type PolicyRequirements } from '../../src/train/capabilities.js';

const kl = { coefficient: 0.1 };
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

it.each<[string, Partial<Capabilities>, PolicyRequirements, string, string]>([
  ['a clipped ratio', { losses: ['reinforce'] }, everything, "the loss 'ratio'", 'algorithm.clip_range to null'],
  ['labels', { losses: ['ratio'] }, { loss: { policy: 'likelihood' } }, "the loss 'likelihood'", 'Choose another'],
  ['KL to the start', { reference: false }, everything, 'algorithm.kl_coeff', 'algorithm.kl_coeff to 0'],
  ['averaged weights', { average: false }, everything, 'moving average', "validation.weights to 'current'"],
  ['hidden states', { hiddenStates: false }, everything, 'hidden states', 'Choose another'],
])('rejects %s', (_name, lacking, demands, message, next) => {
  expect(() => requireCapabilities({ ...all, ...lacking }, demands)).toThrow(
    expect.objectContaining({
      code: 'config',
      message: expect.stringContaining(message) as string,
      where: 'policy.trainer',
      next: expect.stringContaining(next) as string,
    }),
  );
});
