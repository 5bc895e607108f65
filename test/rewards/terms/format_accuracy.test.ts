import { describe, expect, it } from 'vitest';
import { DataError } from '../../../src/core/errors.js';
import type { TermSettings } from '../../../src/rewards/score/settings.js';
import {
  actionsOf,
  formatAccuracy,
  formatScore,
  intersectionOverUnion,
} from '../../../src/rewards/terms/format_accuracy.js';
import { termContract, wholeItem } from './term_contract.js';
import { testServices } from './term_services.js';

const defaults = {
  answer: 'first',
  actions: 'numbers',
  match: 'iou',
  format_weight: 0.3,
  accuracy_weight: 0.7,
} as const;
type Fields = Omit<Extract<TermSettings, { name: 'format_accuracy' }>, 'name' | 'weight'>;

async function score(answer: string, expected: string, fields: Fields = defaults): Promise<unknown> {
  const term = await formatAccuracy.create(fields, testServices());
  return term.score(wholeItem({ answer, expected, source: null, edited: null, truth: null }));
}

termContract('format_accuracy', () => formatAccuracy.create(defaults, testServices()));

describe('format', () => {
  it.each([
    ['<think>say <answer>(1)</answer> or <answer></think> <answer>(2)</answer>', 0.6, 1],
    ['<answer>(1)</answer><think>a</think><answer>(2)</answer>', 0.6, 1],
    // The first opening tag is closed by the only closing one, as the original's pattern has it.
    ['<think>a <answer> b</think> <answer>(1)</answer>', 0.6, 1],
  ])('%j is worth %d by its first answer, and %d by its last', (text, first, last) => {
    expect(formatScore(text, 'first')).toBe(first);
    expect(formatScore(text, 'last')).toBe(last);
  });
});

describe('actions', () => {
  it.each([
    ['(1) Action A (2) Action B', ['1', '2']],
    ['(1)(2), (3);(4)', ['1', '2', '3', '4']],
    ['(1) a\n(2) b', ['1', '2']],
    ['(12) turn', ['12']],
    ['( 1 ) a (x) b 3) c', []],
    ['', []],
    // A number in a label is none of the answer's.
    ['(1) tighten screw (4) (2) close', ['1', '2']],
    ['(1) the model of (2023) here (2) close', ['1', '2']],
    ['(1) turn M(4) bolts (2) close', ['1', '2']],
    // Numbers are names: 01 is another one than 1, and a repeated one is one.
    ['(01) a (1) b (1) c', ['01', '1']],
  ])('in items of %j are %j', (text, expected) => {
    expect([...actionsOf(text, 'items')]).toEqual(expected);
  });

  it('are compared as sets', () => {
    const iou = (a: string, b: string): number =>
      intersectionOverUnion(actionsOf(a, 'numbers'), actionsOf(b, 'numbers'));
    expect(iou('(2) b (1) a', '(1) A (2) B')).toBe(1);
    expect(iou('(1)', '(1)(2)')).toBe(0.5);
    expect(iou('(1)(2)(3)', '(2)(3)(4)')).toBe(0.5);
    expect(iou('(1)(1)', '(1)')).toBe(1);
    expect(iou('(01)', '(1)')).toBe(0);
    expect(iou('(3)', '(1)(2)')).toBe(0);
    expect(iou('', '(1)')).toBe(0);
    expect(iou('', '')).toBe(0);
  });
});

describe('format_accuracy', () => {
  const expected = '<answer>(1) Action A (2) Action B</answer>';

  it('weighs form by 0.3 and agreement by 0.7', async () => {
    const value = 0.3 * 1 + 0.7 * 0.5;
    expect(await score('<think>x</think><answer>(2) Action B</answer>', expected)).toEqual({
      kind: 'scored',
      value,
      normalised: value,
      parts: { 'format_accuracy/format': 1, 'format_accuracy/accuracy': 0.5 },
    });
  });

  it('has other weights, and no partial credit where the match is to be exact', async () => {
    const fields = { ...defaults, match: 'exact', format_weight: 0.5, accuracy_weight: 0.5 } as const;
    const half = await score('<think>x</think><answer>(2) B</answer>', expected, fields);
    expect(half).toMatchObject({ value: 0.5, parts: { 'format_accuracy/accuracy': 0 } });
    const whole = await score('<think>x</think><answer>(2)(1)</answer>', expected, fields);
    expect(whole).toMatchObject({ value: 1, parts: { 'format_accuracy/accuracy': 1 } });
  });

  it.each(['', '<answer></answer>', '<answer>open the box</answer>', '2023'])(
    'a label without actions, %j, is the data set\u2019s fault, named by its item',
    async (label) => {
      const scoring = score('<answer>(1)</answer>', label);
      await expect(scoring).rejects.toThrow(DataError);
      await expect(scoring).rejects.toMatchObject({ where: '4/2/1' });
    },
  );

  it('rejects weights that do not sum to 1', () => {
    expect(formatAccuracy.conflict?.({ ...defaults, format_weight: 0.4 })).toMatchObject({
      field: 'format_weight',
      message: expect.stringContaining('1.1') as string,
    });
    expect(formatAccuracy.conflict?.({ ...defaults, format_weight: 0.1 + 0.2 })).toBeNull();
  });
});
