import { describe, expect, it } from 'vitest';
import {
  rank,
  Schedule,
  type Halving,
  type Job,
  type Notice,
  type RunFolderState,
} from '../../../src/launch/sweep/schedule.js';

function job(name: string, parents: readonly string[] = [], more: Partial<Job> = {}): Job {
  return { name, kind: 'cell', parents, processes: 1, numIterations: 100, ...more };
}

interface Wish {
  readonly retries?: number;
  readonly failFast?: boolean;
  readonly halving?: Halving;
  readonly values?: Readonly<Record<string, number | null>>;
}

function scheduleOf(
  jobs: readonly Job[],
  { retries = 0, failFast = false, halving, values = {} }: Wish = {},
): Schedule {
  return new Schedule(jobs, {
    retries,
    failFast,
    halving: halving ?? null,
    measure: (name, iteration) => values[`${name}@${iteration}`] ?? values[name] ?? null,
  });
}

function startable(schedule: Schedule): string[] {
  return [...schedule.startable()].map((start) => start.job.name);
}

function fails(schedule: Schedule, name: string, mayRetry = true): Notice[] {
  schedule.started(name);
  return schedule.ended(name, { kind: 'failed', reason: 'it broke', mayRetry });
}

function finishes(schedule: Schedule, name: string): Notice[] {
  schedule.started(name);
  return schedule.ended(name, { kind: 'finished' });
}

describe('order', () => {
  it('starts what it was given in that order, children once their parents are finished', () => {
    const schedule = scheduleOf([job('p', [], { kind: 'parent' }), job('a', ['p']), job('b'), job('c', ['p', 'b'])]);
    expect(startable(schedule)).toEqual(['p', 'b']);
    finishes(schedule, 'p');
    expect(startable(schedule)).toEqual(['a', 'b']);
    finishes(schedule, 'b');
    expect(startable(schedule)).toEqual(['a', 'c']);
    finishes(schedule, 'a');
    expect(schedule.done).toBe(false);
    finishes(schedule, 'c');
    expect(schedule.done).toBe(true);
    expect(schedule.names('finished')).toEqual(['p', 'a', 'b', 'c']);
  });

  it('never starts what the directories say is finished, and waits for what others run', () => {
    const schedule = scheduleOf([job('a'), job('b'), job('c', ['b'])]);
    const states: [string, RunFolderState][] = [
      ['a', { kind: 'finished', iteration: 100 }],
      ['b', { kind: 'elsewhere', holder: 'process 1' }],
      ['c', { kind: 'open', iteration: 0, failed: null, interrupted: false }],
    ];
    expect(schedule.found(new Map(states))).toEqual([]);
    expect(startable(schedule)).toEqual([]);
    expect(schedule.done).toBe(false);
    schedule.found(new Map<string, RunFolderState>([['b', { kind: 'finished', iteration: 100 }]]));
    expect(startable(schedule)).toEqual(['c']);
  });

  it('takes over a run that another process left unfinished', () => {
    const schedule = scheduleOf([job('a')]);
    schedule.found(new Map<string, RunFolderState>([['a', { kind: 'elsewhere', holder: 'process 1' }]]));
    schedule.found(
      new Map<string, RunFolderState>([['a', { kind: 'open', iteration: 40, failed: null, interrupted: false }]]),
    );
    expect(startable(schedule)).toEqual(['a']);
  });
});

describe('failures', () => {
  it('retries as told, after everything else, and then gives up', () => {
    const schedule = scheduleOf([job('a'), job('b')], { retries: 2 });
    expect(fails(schedule, 'a')).toEqual([{ kind: 'retry', name: 'a', retry: 1, of: 2 }]);
    expect(startable(schedule)).toEqual(['b', 'a']);
    fails(schedule, 'a');
    expect(fails(schedule, 'a')).toEqual([{ kind: 'gave_up', name: 'a', reason: 'it broke' }]);
    expect(startable(schedule)).toEqual(['b']);
    expect(schedule.phase('a')).toBe('failed');
  });

  it('does not retry what another try cannot change', () => {
    const schedule = scheduleOf([job('a')], { retries: 2 });
    fails(schedule, 'a', false);
    expect(schedule.phase('a')).toBe('failed');
  });

  it('blocks all that starts from a failed run, by its name, and nothing else', () => {
    const schedule = scheduleOf([job('p'), job('a', ['p']), job('b', ['a']), job('c')]);
    expect(fails(schedule, 'p').filter(({ kind }) => kind === 'blocked')).toEqual([
      { kind: 'blocked', name: 'a', by: 'p' },
      { kind: 'blocked', name: 'b', by: 'p' },
    ]);
    expect(startable(schedule)).toEqual(['c']);
  });

  it('keeps a finished child of a run that is refused', () => {
    const schedule = scheduleOf([job('p'), job('a', ['p']), job('b', ['p'])]);
    const states: [string, RunFolderState][] = [
      ['p', { kind: 'refused', reason: 'other settings' }],
      ['a', { kind: 'finished', iteration: 100 }],
      ['b', { kind: 'open', iteration: 0, failed: null, interrupted: false }],
    ];
    schedule.found(new Map(states));
    expect(['p', 'a', 'b'].map((name) => schedule.phase(name))).toEqual(['failed', 'finished', 'blocked']);
  });

  it('starts nothing more after a failure when told so, and calls what was under way interrupted', () => {
    const schedule = scheduleOf([job('a'), job('b'), job('c')], { failFast: true });
    schedule.started('a');
    schedule.started('b');
    schedule.ended('a', { kind: 'failed', reason: 'it broke', mayRetry: true });
    expect(startable(schedule)).toEqual([]);
    expect(schedule.done).toBe(false);
    schedule.ended('b', { kind: 'interrupted' });
    expect(schedule.done).toBe(true);
    expect(schedule.names('queued')).toEqual(['c']);
  });

  it('goes on when a hand stops one run', () => {
    const schedule = scheduleOf([job('a'), job('b', ['a']), job('c')]);
    schedule.started('a');
    schedule.ended('a', { kind: 'interrupted' });
    expect(schedule.phase('b')).toBe('blocked');
    expect(startable(schedule)).toEqual(['c']);
  });
});

describe('successive halving', () => {
  const halving: Halving = { metric: 'reward/mean', rungs: [10, 30], keep: 0.5 };
  const names = ['a', 'b', 'c', 'd'];
  const values = { 'a@10': 1, 'b@10': 4, 'c@10': 3, 'd@10': null, 'b@30': 5, 'c@30': 6 };

  function toFirstRung(schedule: Schedule, order: readonly string[]): Notice[] {
    return order.flatMap((name) => finishes(schedule, name));
  }

  it('compares at each rung and lets the best part go on', () => {
    const schedule = scheduleOf(
      names.map((name) => job(name)),
      { halving, values },
    );
    expect([...schedule.startable()].map((start) => start.untilIteration)).toEqual([10, 10, 10, 10]);
    toFirstRung(schedule, ['a', 'b', 'c']);
    expect(schedule.names('at_rung')).toEqual(['a', 'b', 'c']);
    const notices = finishes(schedule, 'd');
    expect(notices).toEqual([
      { kind: 'stopped', name: 'a', reason: 'at iteration 10: reward/mean 1.000, place 3 of 4, 2 go on' },
      { kind: 'stopped', name: 'd', reason: 'at iteration 10: reward/mean was not recorded, place 4 of 4, 2 go on' },
    ]);
    expect([...schedule.startable()].map((start) => [start.job.name, start.untilIteration])).toEqual([
      ['b', 30],
      ['c', 30],
    ]);
    toFirstRung(schedule, ['b', 'c']);
    expect(schedule.names('stopped')).toEqual(['a', 'b', 'd']);
    expect([...schedule.startable()].map((start) => start.untilIteration)).toEqual([100]);
    finishes(schedule, 'c');
    expect(schedule.done).toBe(true);
  });

  it('decides the same in every order of arrival, and again from what the directories say', () => {
    const jobs = names.map((name) => job(name));
    for (const order of [names, [...names].reverse(), ['c', 'a', 'd', 'b']]) {
      const schedule = scheduleOf(jobs, { halving, values });
      toFirstRung(schedule, order);
      expect(schedule.names('stopped')).toEqual(['a', 'd']);
    }
    const again = scheduleOf(jobs, { halving, values });
    const states: [string, RunFolderState][] = [
      ['a', { kind: 'stopped', iteration: 10, reason: 'at iteration 10' }],
      ['b', { kind: 'open', iteration: 17, failed: null, interrupted: false }],
      ['c', { kind: 'open', iteration: 10, failed: null, interrupted: false }],
      ['d', { kind: 'open', iteration: 10, failed: null, interrupted: false }],
    ];
    // The scheduler died after it had marked one of two.
    expect(again.found(new Map(states)).map(({ kind, ...rest }) => [kind, 'name' in rest && rest.name])).toEqual([
      ['stopped', 'd'],
    ]);
    expect(startable(again)).toEqual(['b', 'c']);
  });

  it('waits for a run that another process brings to the rung', () => {
    const schedule = scheduleOf(
      names.map((name) => job(name)),
      { halving, values },
    );
    schedule.found(new Map<string, RunFolderState>([['c', { kind: 'elsewhere', holder: 'process 1' }]]));
    toFirstRung(schedule, ['a', 'b', 'd']);
    expect(schedule.names('at_rung')).toEqual(['a', 'b', 'd']);
    schedule.found(
      new Map<string, RunFolderState>([['c', { kind: 'open', iteration: 10, failed: null, interrupted: false }]]),
    );
    expect(schedule.names('stopped')).toEqual(['a', 'd']);
  });

  it.each([
    [0.5, 4, 2],
    [0.5, 5, 3],
    [0.01, 5, 1],
    [1, 5, 5],
    // In floating point 0.28 * 25 is a hair above 7.
    [0.28, 25, 7],
    [0.14, 50, 7],
  ])('keeps %d of %i, rounded up: %i', (keep, count, kept) => {
    const contenders = Array.from({ length: count }, (_, i) => ({ name: `r${i}`, value: i }));
    expect(rank({ ...halving, keep }, contenders).filter((one) => one.kept)).toHaveLength(kept);
  });

  it('does not wait for runs that failed, and does not count them', () => {
    const schedule = scheduleOf(
      names.map((name) => job(name)),
      { halving, values },
    );
    toFirstRung(schedule, ['a', 'b', 'c']);
    fails(schedule, 'd');
    expect(schedule.names('stopped')).toEqual(['a']);
  });

  it('decides nothing once the sweep is halted: who is missing may still come', () => {
    const schedule = scheduleOf(
      names.map((name) => job(name)),
      { halving, values },
    );
    names.forEach((name) => schedule.started(name));
    schedule.halt();
    schedule.ended('d', { kind: 'interrupted' });
    for (const name of ['a', 'b', 'c']) schedule.ended(name, { kind: 'finished' });
    expect(schedule.names('stopped')).toEqual([]);
  });

  it('lets parents run through', () => {
    const schedule = scheduleOf([job('p', [], { kind: 'parent' }), job('a', ['p'])], { halving, values });
    expect([...schedule.startable()].map((start) => start.untilIteration)).toEqual([100]);
  });
});
