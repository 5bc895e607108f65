import { describe, expect, it } from 'vitest';
import { FairQueue, type QueueLimits } from '../../src/balance/fair_queue.js';

const roomy: QueueLimits = { perRun: 10_000, total: 10_000, underWay: Infinity };

/** A queue of runs' names, `caller/run`, and who is served with the next turns. */
function made(limits: Partial<QueueLimits> = {}) {
  const queue = new FairQueue<string>({ ...roomy, ...limits });
  const ownerOf = (name: string) => ({ caller: name.split('/')[0], run: name });
  const push = (name: string, times = 1): readonly (string | null)[] =>
    Array.from({ length: times }, () => queue.push(ownerOf(name), name));
  const take = (): string | null => {
    const taken = queue.take(() => true);
    taken?.end();
    return taken?.item ?? null;
  };
  const turns = (count: number): readonly (string | null)[] => Array.from({ length: count }, take);
  return { queue, push, take, turns, ownerOf };
}

const share = (turns: readonly (string | null)[], of: string): number =>
  turns.filter((name) => name?.startsWith(of)).length / turns.length;

describe('turns', () => {
  it('are shared by callers, however many runs each of them names', () => {
    const { push, turns } = made();
    for (let i = 0; i < 100; i++) push(`greedy/${i}`, 2);
    push('other/1', 50);
    expect(share(turns(80), 'other')).toBeCloseTo(0.5, 1);
  });

  it('are shared by the runs of one caller', () => {
    const { push, turns } = made();
    push('one/a', 100);
    push('one/b', 50);
    push('one/c', 10);
    const given = turns(30);
    for (const run of ['one/a', 'one/b', 'one/c']) expect(share(given, run)).toBeCloseTo(1 / 3, 1);
  });

  it('are no more for a name that is another one each time, also of the same caller', () => {
    const { push, turns, take } = made();
    push('one/known', 100);
    take();
    const given: (string | null)[] = [];
    for (let i = 0; i < 60; i++) {
      push(`one/fresh${i}a`);
      push(`one/fresh${i}b`);
      given.push(...turns(1));
    }
    expect(share(given, 'one/known')).toBeCloseTo(0.5, 1);
  });

  it('of one that could not take its own for a while do not come all at once', () => {
    const { queue, push, turns } = made();
    push('one/stuck', 50);
    push('two/free', 100);
    for (let i = 0; i < 40; i++) expect(queue.take((item) => item === 'two/free')?.item).toBe('two/free');
    expect(share(turns(40), 'one')).toBeCloseTo(0.5, 1);
  });

  it('that names took which left are no burden for those that come', () => {
    const { queue, push, turns, take } = made();
    push('one/known', 100);
    take();
    for (let i = 0; i < 1000; i++) push(`one/fresh${i}`);
    expect(queue.dropAll((item) => item.startsWith('one/fresh'))).toHaveLength(1000);
    push('one/new', 10);
    expect(share(turns(10), 'one/new')).toBeCloseTo(0.5, 1);
  });

  it('are given in the order in which a run asked, but what is made again goes first', () => {
    const queue = new FairQueue<number>(roomy);
    const owner = { caller: 'one', run: 'a' };
    for (const item of [1, 2, 3]) queue.push(owner, item);
    queue.push(owner, 4, true);
    expect([1, 2, 3, 4].map(() => queue.take(() => true)?.item)).toEqual([4, 1, 2, 3]);
  });

  it('are not counted for one that left, and only for what was there', () => {
    const { queue, push, ownerOf } = made();
    push('one/a', 2);
    expect([queue.drop(ownerOf('one/a'), 'one/a'), queue.drop(ownerOf('one/b'), 'one/b'), queue.waiting]).toEqual([
      true,
      false,
      1,
    ]);
  });
});

describe('a run that nobody knows', () => {
  it('has its first turn soon, however many names with less came before it', () => {
    const { push, turns } = made();
    push('one/known', 100);
    turns(1);
    for (let i = 0; i < 1000; i++) push(`one/fresh${i}`);
    push('one/run', 4);
    const given = turns(12);
    // Every other turn is a newcomer's, and every other one of these that of the one with most waiting; then it is known.
    expect(given.slice(0, 4)).toContain('one/run');
    expect(given.filter((name) => name === 'one/run').length).toBeGreaterThanOrEqual(3);
  });

  it('waits for no more than all who came before it, however much others have waiting', () => {
    const { push, turns } = made();
    push('one/run');
    const given: (string | null)[] = [];
    for (let i = 0; i < 4; i++) {
      push(`one/fresh${i}`, 2);
      given.push(...turns(1));
    }
    expect(given).toContain('one/run');
  });

  it('finds room where names fill the queue, and keeps it', () => {
    const { push, turns } = made({ total: 100 });
    for (let i = 0; i < 500; i++) push(`one/fresh${i}`);
    const refused = [...push('one/run', 4)];
    for (let i = 500; i < 1000; i++) refused.push(...push(`one/fresh${i}`));
    expect(refused).not.toContain('one/run');
    expect(turns(4)).toContain('one/run');
  });
});

describe('room', () => {
  it('of a run is bounded, and so is what it has under way', () => {
    const { queue, push } = made({ perRun: 2, underWay: 1 });
    expect(push('one/a', 3)).toEqual([null, null, 'one/a']);
    const first = queue.take(() => true);
    expect(queue.take(() => true)).toBeNull();
    first?.end();
    first?.end();
    expect(queue.take(() => true)?.item).toBe('one/a');
    expect(queue.runs()).toEqual(new Map([['one/a', { inFlight: 1, waiting: 0 }]]));
  });

  it('in all is taken from the caller who has most waiting, and there from whoever would wait longest', () => {
    const { queue, push, take } = made({ total: 10 });
    push('one/known', 2);
    take();
    for (let i = 0; i < 9; i++) expect(push(`one/fresh${i}`)).toEqual([null]);
    expect(push('one/fresh9')).toEqual(['one/fresh0']);
    expect(push('two/a')).toEqual(['one/fresh1']);
    expect(push('one/known')).toEqual(['one/fresh2']);
    expect(queue.waiting).toBe(10);
  });
});

it('remembers so many who have nothing to do, and no more', () => {
  const { queue, push, turns } = made();
  for (let i = 0; i < 3000; i++) {
    push(`caller${i % 2000}/a`);
    push(`one/run${i}`);
    turns(2);
  }
  // A thousand callers with a run each, and as many runs of one of them.
  expect(queue.known).toBeLessThan(3 * 1100);
});

it('knows a run that pauses, however many names come and go meanwhile', () => {
  const { push, turns } = made();
  push('one/known');
  turns(1);
  for (let i = 0; i < 500; i++) {
    push(`one/fresh${i}`);
    turns(1);
  }
  for (let i = 0; i < 64; i++) push(`one/other${i}`);
  push('one/known');
  expect(turns(3)).toContain('one/known');
});

it('forgets those first who had nothing to do for longest, and not one that came back meanwhile', () => {
  const { push, turns } = made();
  const pause = (round: string): void => {
    for (let i = 0; i < 600; i++) {
      push(`one/${round}${i}`);
      turns(1);
    }
  };
  push('one/known');
  turns(1);
  pause('a');
  push('one/known');
  turns(1);
  // More names have come since it did first than are remembered, and fewer since it came back.
  pause('b');
  for (let i = 0; i < 64; i++) push(`one/other${i}`);
  push('one/known');
  expect(turns(3)).toContain('one/known');
});

it('remembers nobody who had no turn, and costs no more for names that come and go without one', () => {
  const { queue, push, ownerOf } = made();
  push('one/known');
  for (let i = 0; i < 5000; i++) {
    push(`one/fresh${i}`);
    expect(queue.drop(ownerOf(`one/fresh${i}`), `one/fresh${i}`)).toBe(true);
  }
  expect(queue.known).toBe(2);
});

it('knows a run that pauses also while more names wait than it remembers of those that do not', () => {
  const { push, turns } = made();
  push('one/known');
  turns(1);
  for (let i = 0; i < 3000; i++) push(`one/fresh${i}`);
  for (let round = 0; round < 30; round++) {
    push('one/known');
    expect(turns(3)).toContain('one/known');
  }
});
