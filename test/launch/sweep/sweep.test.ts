import { beforeEach, describe, expect, it, vi } from 'vitest';
import { ConfigError, EndpointError, InternalError, JudgeLimitError, RunError } from '../../../src/core/errors.js';
import { RunFailed } from '../../../src/launch/processes/failure.js';
import type { SizedJob } from '../../../src/launch/sweep/plan.js';
import type { Schedule } from '../../../src/launch/sweep/schedule.js';
import { runSweep, type SweepOptions } from '../../../src/launch/sweep/sweep.js';
import { fakeJob, FakeRunner, FakeSlots, FakeView, FakeWorld, settle } from './fakes.js';

let runner: FakeRunner;
let world: FakeWorld;
let view: FakeView;
let stop: AbortController;

beforeEach(() => {
  runner = new FakeRunner();
  world = new FakeWorld();
  view = new FakeView();
  stop = new AbortController();
});

function start(jobs: readonly SizedJob[], slots: number, more: Partial<SweepOptions> = {}): Promise<Schedule> {
  return runSweep(
    { jobs, retries: 0, failFast: false, maxParallel: null, ...more },
    { runner, slots: new FakeSlots(slots), world, view, stop: stop.signal, kill: stop.signal },
  );
}

const jobs = (...names: string[]): SizedJob[] => names.map((name) => fakeJob(name));

describe('a sweep', () => {
  it('fills the slots and starts the next run when one ends', async () => {
    const ended = start(jobs('a', 'b', 'c'), 2);
    expect(runner.names).toEqual(['a', 'b']);
    runner.of('b').end();
    await settle();
    expect(runner.names).toEqual(['a', 'b', 'c']);
    runner.of('a').end();
    runner.of('c').end();
    expect((await ended).names('finished')).toEqual(['a', 'b', 'c']);
    expect(view.ended).toBe(1);
  });

  it('lets a small run go first where a large one has no room, and gives the large one its turn', async () => {
    const ended = start([fakeJob('a'), fakeJob('wide', [], { processes: 2 }), fakeJob('b'), fakeJob('c')], 2);
    expect(runner.names).toEqual(['a', 'b']);
    runner.of('a').end();
    await settle();
    expect(runner.names).toEqual(['a', 'b', 'c']);
    runner.of('b').end();
    runner.of('c').end();
    await settle();
    expect(runner.names).toEqual(['a', 'b', 'c', 'wide']);
    runner.of('wide').end();
    await ended;
  });

  it('continues when a run fails, says so at once, and retries', async () => {
    const ended = start(jobs('a', 'b'), 1, { retries: 1 });
    const failure = new RunFailed({
      run: 'a',
      rank: 0,
      processes: 1,
      exitCode: 7,
      signal: null,
      reason: 'ended with exit code 7',
      lastLines: ['one', 'two'],
      advice: 'Do this.',
    });
    runner.of('a').fail(failure);
    await settle();
    expect(view.kinds).toEqual(['started a', 'failed a', 'retry a', 'started b']);
    expect(view.events[1]).toMatchObject({
      failure: { reason: 'rank 0 ended with exit code 7', lastLines: ['one', 'two'], advice: 'Do this.' },
    });
    runner.of('b').end();
    await settle();
    runner.of('a').end();
    expect((await ended).names('finished')).toEqual(['b', 'a']);
  });

  it('does not start again what somebody killed on purpose', async () => {
    const ended = start([...jobs('a'), fakeJob('b', ['a'])], 1, { retries: 3 });
    world.states.set('a', { kind: 'open', failed: null, interrupted: true });
    const killed = {
      run: 'a',
      rank: 0,
      processes: 1,
      exitCode: null,
      signal: 'SIGKILL',
      reason: 'was killed',
    } as const;
    runner.of('a').fail(new RunFailed({ ...killed, lastLines: [], advice: null }));
    const schedule = await ended;
    expect(['a', 'b'].map((name) => schedule.phase(name))).toEqual(['interrupted', 'blocked']);
    expect(view.kinds).toEqual(['started a', 'interrupted a', 'blocked b']);
    expect(runner.names).toEqual(['a']);
  });

  it('tries again what its judge left alone', async () => {
    const ended = start(jobs('a'), 1, { retries: 1 });
    world.states.set('a', { kind: 'open', failed: null, interrupted: true });
    runner.of('a').fail(new EndpointError('the judge stayed away'));
    await settle();
    runner.of('a').end();
    expect((await ended).phase('a')).toBe('finished');
    expect(view.kinds).toEqual(['started a', 'failed a', 'retry a', 'started a', 'finished a']);
  });

  it.each([
    ['a wrong config', new ConfigError('other settings')],
    ['a limit that is reached', new JudgeLimitError('as many as are allowed')],
    ['what a defect of this program ended', new InternalError('it cannot be')],
    ['what an error of Node ended', new TypeError('undefined is not a function')],
  ])('does not try %s again', async (_, error) => {
    const ended = start(jobs('a'), 1, { retries: 3 });
    runner.of('a').fail(error);
    expect((await ended).phase('a')).toBe('failed');
    expect(runner.names).toEqual(['a']);
  });

  it('stops running runs at the first failure if requested', async () => {
    const ended = start(jobs('a', 'b', 'c'), 2, { failFast: true });
    expect(runner.of('b').stop.aborted).toBe(false);
    runner.of('a').fail(new RunError('it broke'));
    await settle();
    expect(runner.of('b').stop.aborted).toBe(true);
    runner.of('b').end('interrupted');
    const schedule = await ended;
    expect(['a', 'b', 'c'].map((name) => schedule.phase(name))).toEqual(['failed', 'interrupted', 'queued']);
  });

  it('lets runs checkpoint when it is stopped, and starts nothing more', async () => {
    const ended = start(jobs('a', 'b'), 1);
    stop.abort();
    expect(runner.of('a').stop.aborted).toBe(true);
    runner.of('a').end('interrupted');
    expect((await ended).phase('a')).toBe('interrupted');
    expect(runner.names).toEqual(['a']);
  });

  it('leaves a run to the process that was first, and takes what it made of it', async () => {
    vi.useFakeTimers();
    try {
      const ended = start(jobs('a'), 1);
      world.states.set('a', { kind: 'elsewhere', holder: 'process 1 on this machine' });
      runner.of('a').fail(new RunError('the run is in use'));
      await vi.advanceTimersByTimeAsync(600);
      expect(view.kinds).toEqual(['started a', 'elsewhere a']);
      world.states.set('a', { kind: 'finished' });
      await vi.advanceTimersByTimeAsync(600);
      expect((await ended).phase('a')).toBe('finished');
      expect(runner.names).toEqual(['a']);
    } finally {
      vi.useRealTimers();
    }
  });

  it('lets what it started stop when its own work breaks', async () => {
    const ended = start(jobs('a', 'b'), 2);
    const raised = expect(ended).rejects.toThrow('the disk is read-only');
    world.inspect = () => {
      throw new RunError('the disk is read-only');
    };
    runner.of('a').fail(new RunError('it broke'));
    await settle();
    expect(runner.of('b').stop.aborted).toBe(true);
    runner.of('b').end('interrupted');
    await raised;
    expect(view.ended).toBe(1);
  });
});
