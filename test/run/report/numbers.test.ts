import { expect, it } from 'vitest';
import { showLoss, signedEstimate, signedLoss } from '../../../src/run/report/numbers.js';

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
