import { appendFileSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { readSpent, showSpent, Spending, type Price } from '../../src/run/spending.js';
import { testFolders } from '../support/folder.js';

const folders = testFolders('spending');
const price: Price = { currency: 'USD', perMillion: { prefill: 1, sampled: 10, trained: 100 } };

describe('what a run spends', () => {
  it('is added up over attempts, and written only where there is something', () => {
    const paths = { spent: join(folders(), 'spent.jsonl') };
    const first = new Spending(paths);
    first.limit(price, null);
    first.save();
    expect(readSpent(paths)).toBeNull();
    expect(first.metrics()).toEqual({});
    first.count('prefill', 1000);
    first.count('sampled', 200);
    first.save();
    const second = new Spending(paths);
    second.limit(price, null);
    second.count('trained', 30);
    second.count('prefill', 1);
    // 1,001 of 1, 200 of 10 and 30 of 100, each for a million.
    const cost = (1001 + 2000 + 3000) / 1e6;
    expect(second.metrics()).toEqual({
      'spent/prefill_tokens': 1001,
      'spent/sampled_tokens': 200,
      'spent/trained_tokens': 30,
      'spent/cost': expect.closeTo(cost, 12) as number,
    });
    second.save();
    second.save();
    expect(readFileSync(paths.spent, 'utf8').split('\n').length).toBe(3);
    expect(readSpent(paths)).toMatchObject({ prefill: 1001, sampled: 200, trained: 30, currency: 'USD' });
    expect(showSpent(readSpent(paths)!)).toBe('1,001 tokens read, 200 written, 30 trained on: 0.006 USD');
  });

  it('has no cost without prices, and the whole cost once there are some', () => {
    const paths = { spent: join(folders(), 'spent.jsonl') };
    const first = new Spending(paths);
    first.limit(null, null);
    first.count('trained', 10_000);
    first.save();
    expect(readSpent(paths)).toMatchObject({ cost: null, currency: null });
    expect(showSpent(readSpent(paths)!)).toBe('0 tokens read, 0 written, 10,000 trained on');
    const second = new Spending(paths);
    second.limit(price, null);
    second.count('trained', 10_000);
    expect(second.metrics()['spent/cost']).toBeCloseTo(2, 9);
    // Without them again, what is known stays known.
    second.save();
    const third = new Spending(paths);
    third.count('trained', 10_000);
    expect(third.metrics()['spent/cost']).toBeCloseTo(2, 9);
  });

  it('is over once the budget is reached, not before', () => {
    const spending = new Spending({ spent: join(folders(), 'spent.jsonl') });
    spending.limit(price, 0.5);
    spending.count('sampled', 49_999);
    expect(spending.over()).toBeNull();
    spending.count('sampled', 1);
    expect(spending.over()).toBe('the budget is spent: 0.50 USD of 0.50 USD (launch.budget)');
    spending.limit(price, 0.6);
    expect(spending.over()).toBeNull();
  });

  it('goes on after a line that a crash tore, and names a file that is none of its own', () => {
    const paths = { spent: join(folders(), 'spent.jsonl') };
    const first = new Spending(paths);
    first.count('prefill', 5);
    first.save();
    appendFileSync(paths.spent, '{"at": "2026');
    const second = new Spending(paths);
    second.count('prefill', 2);
    second.save();
    expect(readSpent(paths)).toMatchObject({ prefill: 7 });
    appendFileSync(paths.spent, '{"prefill": -1}\n');
    expect(() => readSpent(paths)).toThrow(expect.objectContaining({ code: 'run', where: paths.spent }));
  });
});
