import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import type { LoadedConfig } from '../../../src/config/load.js';
import { watchBudget } from '../../../src/launch/sweep/budget.js';
import type { PlannedJob } from '../../../src/launch/sweep/plan.js';
import { Spending } from '../../../src/run/spending.js';
import { testFolders } from '../../support/folder.js';
import { fakeJob } from './fakes.js';

const folders = testFolders('budget');
beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

function job(base: string, name: string, prices: string | null = 'prices.json'): PlannedJob {
  const config = {
    settings: { run_name: name, base_exp_dir: base, policy: { trainer: { type: 'tinker', prices } } },
  } as unknown as LoadedConfig;
  return fakeJob(name, [], { config });
}

/** Each sampled token costs 1. */
function spend(base: string, name: string, tokens: number, currency = 'USD'): void {
  mkdirSync(join(base, name), { recursive: true });
  const spending = new Spending({ spent: join(base, name, 'spent.jsonl') });
  spending.limit({ currency, perMillion: { prefill: 0, sampled: 1e6, trained: 0 } }, null);
  spending.count('sampled', tokens);
  spending.save();
}

describe("a sweep's budget", () => {
  it('is over once all runs together have spent it, those of before too', () => {
    const base = folders();
    const told: string[] = [];
    const watch = watchBudget([job(base, 'a'), job(base, 'b')], 10, (why) => told.push(why));
    spend(base, 'a', 6);
    vi.advanceTimersByTime(5000);
    expect(watch.signal.aborted).toBe(false);
    spend(base, 'b', 4);
    vi.advanceTimersByTime(5000);
    expect(watch.signal.aborted).toBe(true);
    expect(told).toEqual(['the budget is spent: 10.00 USD of 10.00 USD (--budget)']);
    watch.close();
    const again = watchBudget([job(base, 'a'), job(base, 'b')], 10, () => {});
    expect(again.signal.aborted).toBe(true);
    again.close();
  });

  it('is over where runs spend currencies that have no sum', () => {
    const base = folders();
    spend(base, 'a', 1);
    spend(base, 'b', 1, 'EUR');
    const told: string[] = [];
    const watch = watchBudget([job(base, 'a'), job(base, 'b')], 10, (why) => told.push(why));
    expect(watch.signal.aborted).toBe(true);
    expect(told).toEqual(['the runs spend USD and EUR, which --budget cannot add up']);
    watch.close();
  });

  it('is refused where no run says what it spends', () => {
    expect(() => watchBudget([job(folders(), 'a', null), fakeJob('b')], 10, () => {})).toThrow(
      /--budget: found 10, and no run has policy\.trainer\.prices/,
    );
  });
});
