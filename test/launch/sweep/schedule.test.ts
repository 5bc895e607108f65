import { describe, expect, it } from 'vitest';
import { Schedule, type Job, type Notice, type RunFolderState } from '../../../src/launch/sweep/schedule.js';

function job(name: string, parents: readonly string[] = [], more: Partial<Job> = {}): Job {
  return { name, kind: 'cell', parents, processes: 1, ...more };
}

function scheduleOf(jobs: readonly Job[], { retries = 0, failFast = false } = {}): Schedule {
  return new Schedule(jobs, { retries, failFast });
}

function startable(schedule: Schedule): string[] {
  return [...schedule.startable()].map(({ name }) => name);
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
      ['a', { kind: 'finished' }],
      ['b', { kind: 'elsewhere', holder: 'process 1' }],
      ['c', { kind: 'open', failed: null, interrupted: false }],
    ];
    expect(schedule.update(new Map(states))).toEqual([]);
    expect(startable(schedule)).toEqual([]);
    expect(schedule.done).toBe(false);
    schedule.update(new Map<string, RunFolderState>([['b', { kind: 'finished' }]]));
    expect(startable(schedule)).toEqual(['c']);
  });

  it('takes over a run that another process left unfinished', () => {
    const schedule = scheduleOf([job('a')]);
    schedule.update(new Map<string, RunFolderState>([['a', { kind: 'elsewhere', holder: 'process 1' }]]));
    schedule.update(new Map<string, RunFolderState>([['a', { kind: 'open', failed: null, interrupted: false }]]));
    expect(startable(schedule)).toEqual(['a']);
  });
});

describe('failures', () => {
  it('retries the given number of times, after everything else, and then gives up', () => {
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

  it('keeps a finished child of a run that is rejected', () => {
    const schedule = scheduleOf([job('p'), job('a', ['p']), job('b', ['p'])]);
    const states: [string, RunFolderState][] = [
      ['p', { kind: 'refused', reason: 'other settings' }],
      ['a', { kind: 'finished' }],
      ['b', { kind: 'open', failed: null, interrupted: false }],
    ];
    schedule.update(new Map(states));
    expect(['p', 'a', 'b'].map((name) => schedule.phase(name))).toEqual(['failed', 'finished', 'blocked']);
  });

  it('starts nothing more after a failure if requested, and marks running runs as interrupted', () => {
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

  it('continues when a hand stops one run', () => {
    const schedule = scheduleOf([job('a'), job('b', ['a']), job('c')]);
    schedule.started('a');
    schedule.ended('a', { kind: 'interrupted' });
    expect(schedule.phase('b')).toBe('blocked');
    expect(startable(schedule)).toEqual(['c']);
  });
});
