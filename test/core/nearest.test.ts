import { expect, it } from 'vitest';
import { nearest } from '../../src/core/nearest.js';

const KEYS = ['learning_rate', 'betas', 'eps', 'weight_decay', 'max_grad_norm', 'per_device_batch_size'];

it.each([
  ['lr', 'learning_rate'],
  ['wd', 'weight_decay'],
  ['batch_size', 'per_device_batch_size'],
  ['learning_rat', 'learning_rate'],
  ['learn', 'learning_rate'],
  ['max_grad_nrom', 'max_grad_norm'],
  ['xy', null],
])('%s is %s', (word, meant) => {
  expect(nearest(word, KEYS)).toBe(meant);
});

it('guesses nothing where an abbreviation has two readings', () => {
  expect(nearest('lr', ['learning_rate', 'log_ratio'])).toBeNull();
  expect(nearest('size', ['group_size', 'batch_size'])).toBeNull();
});
