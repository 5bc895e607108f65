import { describe, expect, it } from 'vitest';
import { JudgeLimitError } from '../../../src/core/errors.js';
import type { ProcessGroup } from '../../../src/core/group/process_group.js';
import { WaitInterrupted } from '../../../src/core/group/rank_zero.js';
import { CallLimit } from '../../../src/train/scoring/call_limit.js';
import { sharedScorer } from '../../../src/train/scoring/judge_scorer.js';
import type { Scorer } from '../../../src/train/scoring/scorer.js';
import { openGroups } from '../groups.js';
import { scored } from '../small_training.js';

/** Asks as many questions as there may be, of so many requests each; says how many there were. */
function askAll(calls: CallLimit, requests = 1): number {
  let asked = 0;
  for (; calls.begin(); asked++) calls.end(requests);
  return asked;
}

describe('a limit to requests', () => {
  it('counts what was asked before, what is asked, and what is under way', () => {
    const calls = new CallLimit(10, 4, 1);
    expect(calls.begin()).toBe(true);
    calls.end(3);
    expect([calls.begin(), calls.begin(), calls.begin()]).toEqual([true, true, true]);
    expect(calls.report().refused).toBe(false);
    expect(calls.begin()).toBe(false);
    expect(calls.report().refused).toBe(true);
  });

  it('ends all waits once the paid answers have arrived', () => {
    const calls = new CallLimit(2, 0, 1);
    expect([calls.begin(), calls.begin(), calls.begin()]).toEqual([true, true, false]);
    calls.end(1);
    expect(calls.exhausted.aborted).toBe(false);
    calls.end(1);
    expect(calls.exhausted.aborted).toBe(true);
    const spent = new CallLimit(2, 2, 1);
    expect(spent.exhausted.aborted).toBe(false);
    expect([spent.begin(), spent.exhausted.aborted]).toEqual([false, true]);
  });

  it('gives each process its share, and shares again what some did not use', () => {
    const [a, b] = [new CallLimit(20, 0, 2), new CallLimit(20, 0, 2)];
    for (let i = 0; i < 10; i++) {
      a.begin();
      a.end(1);
    }
    b.begin();
    const reports = [a.report(), b.report()];
    // It ends after it was told: it counts the next time.
    b.end(1);
    const total = a.total(reports);
    expect(total).toBe(10);
    for (const each of [a, b]) each.known(total);
    expect([askAll(a), askAll(b)]).toEqual([5, 4]);
    expect(() => a.total([a.report(), b.report()])).toThrow(JudgeLimitError);
  });

  it('reports that what is left is too little for several processes', () => {
    const calls = new CallLimit(3, 0, 2);
    expect(askAll(calls)).toBe(1);
    expect(() => calls.total([calls.report(), { own: 0, refused: false }])).toThrow(
      'judge request limit exceeded (1 of 3; what is left is too little for the next questions of 2 processes',
    );
  });
});

describe('a limit to the requests of several processes', () => {
  it('ends the run for all where one of them had to refuse, after what they got is stored', async () => {
    const groups = await openGroups(2);
    const stored: string[] = [];
    const scorer = (group: ProcessGroup, calls: CallLimit): Scorer =>
      sharedScorer({
        group,
        calls,
        local: { begin: async () => [], settle: async () => [], close: async () => {} },
        take: () => [
          {
            key: `of rank ${group.rank}`,
            requestHash: '',
            model: '',
            text: '',
            problem: null,
            scores: [],
            attempts: 1,
            latencyMs: 0,
          },
        ],
        store: ({ key }) => void stored.push(key),
        needsSettling: () => false,
      });
    const limits = groups.map(() => new CallLimit(6, 0, 2));
    const scorers = groups.map((group, rank) => scorer(group, limits[rank]));
    const settle = () => Promise.allSettled(scorers.map((one) => one.settle([], [scored(1)])));
    limits[0].begin();
    limits[0].end(1);
    expect(await settle()).toMatchObject([{ status: 'fulfilled' }, { status: 'fulfilled' }]);
    // Of the five that are left each may ask two.
    expect(askAll(limits[1])).toBe(2);
    const [first, second] = await settle();
    expect(first).toMatchObject({ status: 'rejected', reason: expect.any(JudgeLimitError) as JudgeLimitError });
    expect(second).toMatchObject({ status: 'rejected', reason: expect.any(WaitInterrupted) as WaitInterrupted });
    expect(stored).toEqual(['of rank 0', 'of rank 1', 'of rank 0', 'of rank 1']);
    for (const group of groups) group.close();
  });
});
