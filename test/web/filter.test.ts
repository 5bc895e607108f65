import { describe, expect, it } from 'vitest';
import { matchesCondition, ordering, parseFilter, resolveKey } from '../../src/web/run_list.js';

describe('a filter', () => {
  it.each([
    ['', []],
    ['  rl  ', [{ key: null, operator: '~', value: 'rl' }]],
    ['state=running', [{ key: 'state', operator: '=', value: 'running' }]],
    [
      'a.b<=3e-4 c!=x',
      [
        { key: 'a.b', operator: '<=', value: '3e-4' },
        { key: 'c', operator: '!=', value: 'x' },
      ],
    ],
    ['"data.dir=my data"', [{ key: 'data.dir', operator: '=', value: 'my data' }]],
    ['a=', [{ key: 'a', operator: '=', value: '' }]],
    ['=a', [{ key: null, operator: '~', value: '=a' }]],
    ['where~host=1', [{ key: 'where', operator: '~', value: 'host=1' }]],
  ])('%j', (text, conditions) => {
    expect(parseFilter(text)).toEqual(conditions);
  });

  it('has to end its quotations', () => {
    expect(() => parseFilter('a="b c')).toThrow('quotation mark');
  });

  it.each([
    [3e-4, '=', '0.0003', true],
    [3e-4, '<=', '3e-4', true],
    [10, '>', '9', true],
    ['10', '>', '9', false],
    [10, '=', 'ten', false],
    ['Emu3', '~', 'emu', true],
    [['a'], '=', '["a"]', true],
    [['a', 'b'], '=', 'b', true],
    [['a', 'b'], '!=', 'b', false],
    [['a', 'b'], '!=', 'c', true],
    [['a', 'bc'], '~', 'c', true],
    [[], '=', '[]', true],
    [true, '=', 'true', true],
    [null, '=', 'null', true],
    [null, '<', '5', false],
    [null, '<=', '5', false],
    [null, '>=', 'a', false],
    [undefined, '=', '', false],
    [undefined, '!=', 'x', true],
    [undefined, '<', '5', false],
    [0, '=', '', false],
  ] as const)('%j %s %j is %j', (value, operator, wanted, holds) => {
    expect(matchesCondition(value, { operator, value: wanted })).toBe(holds);
  });
});

describe('a key', () => {
  const keys = ['name', 'algorithm.kl_coeff', 'policy.model.run', 'reward.model.run'];

  it('may be the end of one', () => {
    expect(resolveKey('name', keys)).toBe('name');
    expect(resolveKey('kl_coeff', keys)).toBe('algorithm.kl_coeff');
  });

  it('has to be that of one alone, and one that there is', () => {
    expect(() => resolveKey('model.run', keys)).toThrow(
      "'model.run' is ambiguous. Use one of: policy.model.run, reward.model.run",
    );
    expect(() => resolveKey('algorithm.kl_coef', keys)).toThrow("Did you mean 'algorithm.kl_coeff'?");
    expect(() => resolveKey('zebra', keys)).toThrow("Unknown column or setting 'zebra'.");
  });
});

it('orders numbers, then texts, and leaves what is missing at the end either way', () => {
  const values = [null, 'b', 2, undefined, 'a', 10];
  expect([...values].sort(ordering(false))).toEqual([2, 10, 'a', 'b', null, undefined]);
  expect([...values].sort(ordering(true))).toEqual([10, 2, 'b', 'a', null, undefined]);
});
