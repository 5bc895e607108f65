import { describe, expect, it } from 'vitest';
import { heldOutRows, showLoss, signedEstimate, signedLoss } from '../../../src/run/report/numbers.js';

it.each([
  [2.3026, '2.3026'],
  [0.0123456, '0.0123'],
  [0.001, '0.0010'],
  [0.000_999, '9.99e-4'],
  [-0.000_023_1, '-2.31e-5'],
  [0, '0.0000'],
  [NaN, 'NaN'],
])('the loss %d is %s', (value, shown) => {
  expect(showLoss(value)).toBe(shown);
});

it('gives differences their sign', () => {
  expect([signedLoss(0), signedLoss(-0.146_48), signedLoss(0.000_02)]).toEqual(['+0.0000', '-0.1465', '+2.00e-5']);
  expect(signedEstimate({ mean: 0.7, stderr: 0.2 })).toBe('+0.700 ± 0.200');
  expect(signedEstimate({ mean: -0.7, stderr: null })).toBe('-0.700');
});

describe('the rows of held-out numbers', () => {
  const number = (set: string | null, mean: number) => ({
    identity: '',
    ...{ by: null, manner: 'sampled' as const, set },
    ...{ before: { mean, stderr: 0.1 }, after: { mean: mean + 1, stderr: 0.1 } },
  });
  const none = { before: null, after: null };
  const labels = (
    numbers: readonly ReturnType<typeof number>[],
    parts: Readonly<Record<string, { before: number; after: number }>> = {},
  ): string[] => heldOutRows({ numbers, parts, loss: none, scale: null }).map(({ label }) => label);

  it('include sets only if there are several', () => {
    expect(labels([number(null, 3), number('s', 3)])).toEqual(['reward, sampled']);
    expect(labels([number(null, 3), number('s', 2), number('c', 4)])).toEqual([
      'reward, sampled',
      's, sampled',
      'c, sampled',
    ]);
  });

  it('leave out a part that equals the reward', () => {
    const parts = { 'viescore/overall': { before: 3, after: 4 }, 'viescore/artifacts': { before: 3, after: 5 } };
    expect(labels([number(null, 3)], parts)).toEqual(['reward, sampled', 'viescore/artifacts']);
  });
});
