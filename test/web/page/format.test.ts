import { describe, expect, it } from 'vitest';
import {
  isStoppedEarly,
  piecesOf,
  rewardScale,
  showAgo,
  showChange,
  showDuration,
  showNumber,
  showTick,
  showValue,
  visible,
  withHyphens,
} from '../../../src/web/page/format.js';

describe('what a person reads', () => {
  it.each([
    [null, '–'],
    [0, '0'],
    [3, '3'],
    [0.123456, '0.1235'],
    [12.3456, '12.35'],
    [0.0001234, '1.23e-4'],
    [1234567, '1.23e6'],
    [-0.5, '-0.5'],
    [100000, '100000'],
    [Infinity, 'Infinity'],
  ])('%j: %s', (value, text) => {
    expect(showNumber(value)).toBe(text);
  });

  it.each([
    [27.001, 0.001, '27.001'],
    [2.5, 2.5, '2.5'],
    [0.30000000000000004, 0.1, '0.3'],
    [200, 100, '200'],
    [0, 5e-6, '0'],
    [1.5e-5, 5e-6, '1.5e-5'],
    [2.5e6, 5e5, '2.5e+6'],
  ])('writes %s at an axis in steps of %s so that it differs from its neighbors: %s', (value, step, text) => {
    expect(showTick(value, step)).toBe(text);
  });

  it('signs changes', () => {
    expect([showChange(0.5), showChange(-0.5)]).toEqual(['+0.5', '−0.5']);
  });

  it.each([
    [-3, '0 s'],
    [59, '59 s'],
    [119, '119 s'],
    [120, '2 min'],
    [7_200, '2 h'],
    [200_000, '2 d'],
  ])('%i seconds: %s', (seconds, text) => {
    expect(showDuration(seconds)).toBe(text);
  });

  it('explains how long ago', () => {
    expect([showAgo(null, 5), showAgo(1_000, 31_000)]).toEqual(['–', '30 s ago']);
  });

  it('shows values as JSON, but for texts', () => {
    expect(['a', 3e-4, true, [1], null, { a: '\u0000' }].map(showValue)).toEqual([
      'a',
      '3.00e-4',
      'true',
      '[1]',
      '–',
      '{"a":"\\u0000"}',
    ]);
  });

  it('spells out what a screen would obey', () => {
    expect(visible('a\tb\nc\u001b[31m \u202e \u200b \u2066 \ufeff \r')).toBe(
      'a\tb\nc\\u001b[31m \\u202e \\u200b \\u2066 \\ufeff \\u000d',
    );
    expect(visible('<b>é漢字🙂</b>')).toBe('<b>é漢字🙂</b>');
  });
});

describe('where a text may break inside of a word', () => {
  it.each([
    ['', []],
    ['a held-out reward of 5.088 ± 0.240', ['a held-out reward of 5.088 ± 0.240']],
    ['earl_table__sc2stage', ['earl_table__sc2stage']],
    ['run earl_table__recipe-sft_sc2stage is', ['run ', 'earl_', 'table__', 'recipe-', 'sft_', 'sc2stage', ' is']],
    ['/data/tiny_seed_1/list.json\nnext', ['/', 'data/', 'tiny_', 'seed_', '1/', 'list.', 'json', '\nnext']],
    ['edit_objective__kl-3e-4__seed-1', ['edit_', 'objective__', 'kl-3e-4__', 'seed-1']],
    ['Qwen/Qwen2.5-VL-72B-Instruct', ['Qwen/', 'Qwen2.5-', 'VL-72B-', 'Instruct']],
    ['x'.repeat(45), ['x'.repeat(20), 'x'.repeat(20), 'x'.repeat(5)]],
    ['-'.repeat(45), ['-'.repeat(20), '-'.repeat(20), '-'.repeat(5)]],
    ['語😀'.repeat(11), ['語😀'.repeat(10), '語😀']],
  ])('%j', (text, pieces) => {
    expect(piecesOf(text)).toEqual(pieces);
    expect(piecesOf(text).join('')).toBe(text);
  });
});

it('keeps together what has a hyphen before a digit', () => {
  expect(withHyphens('kl 3e-4, well-known, seed-1')).toEqual(['kl ', '3e-4,', ' well-known, ', 'seed-1', '']);
});

it('knows the runs that were stopped early', () => {
  expect(isStoppedEarly({ state: 'finished', iteration: 7, num_iterations: 9 })).toBe(true);
  expect(isStoppedEarly({ state: 'finished', iteration: 9, num_iterations: 9 })).toBe(false);
  expect(isStoppedEarly({ state: 'failed', iteration: 7, num_iterations: 9 })).toBe(false);
});

it('names a scale that all runs share', () => {
  const of = (scale: string | null, metric = 'validation/sampled/mean'): Parameters<typeof rewardScale>[0][number] => ({
    held_out: { metric, scale, label: null, before: null, after: 1, stderr: null, iteration: 2 },
  });
  expect(rewardScale([of('viescore, 0 to 10'), of('viescore, 0 to 10')])).toBe('viescore, 0 to 10');
  expect(rewardScale([of('viescore, 0 to 10'), of('format, 0 to 1')])).toBeNull();
  expect(rewardScale([of('viescore, 0 to 10'), { held_out: null }])).toBeNull();
  expect(rewardScale([of('loss, lower is better', 'validation/loss')])).toBeNull();
  expect(rewardScale([])).toBeNull();
});
