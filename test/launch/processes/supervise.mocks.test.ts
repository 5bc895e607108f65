/** Supervision in a world whose clock and processes the test moves. */
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import type { ChildExit, ChildOptions } from '../../../src/launch/processes/child.js';
import type { RunFailed } from '../../../src/launch/processes/failure.js';
import type { Guardian } from '../../../src/launch/processes/guardian.js';
import { supervise, type Supervision, type SupervisionEnd } from '../../../src/launch/processes/supervise.js';

/** A process that lives until the test says otherwise. */
class FakeChild {
  readonly pid = 4_000_000 + children.length;
  readonly start = '1';
  readonly signals: NodeJS.Signals[] = [];
  readonly messages: unknown[] = [];
  readonly tail: string[] = [];
  readonly ended: Promise<ChildExit>;
  activity = 0;
  isAlive = true;
  #resolve: (exit: ChildExit) => void = () => {};

  constructor(readonly options: ChildOptions) {
    this.ended = new Promise((resolve) => (this.#resolve = resolve));
  }

  signal(signal: NodeJS.Signals): void {
    if (!this.isAlive) return;
    this.signals.push(signal);
    if (signal === 'SIGKILL') this.end({ code: null, signal });
  }

  send(message: unknown): void {
    this.messages.push(message);
  }

  print(line: string): void {
    this.activity++;
    this.options.onLine(line);
  }

  end(exit: Partial<ChildExit> = {}): void {
    this.isAlive = false;
    this.#resolve({ code: exit.signal === undefined ? 0 : null, signal: null, ...exit });
  }
}

/** The processes of the attempt, by rank. */
let children: FakeChild[];
/** Marks whose processes were ended wherever they went. */
let marksEnded: string[];
/** Milliseconds that this process slept: its clock passed over them, its timers did not. */
let asleep: number;

vi.mock('../../../src/launch/processes/child.js', () => ({
  GuardedChild: {
    start: async (options: ChildOptions) => {
      if (options.command[0] === 'missing') throw new Error('no such program');
      const child = new FakeChild(options);
      children.push(child);
      return child;
    },
  },
  endMarked: async (mark: string, graceS: number) => void marksEnded.push(`${mark} within ${graceS}`),
}));
vi.mock('node:timers/promises', () => ({
  setTimeout: (ms: number, value: unknown, { signal }: { signal?: AbortSignal } = {}) =>
    new Promise((resolve, reject) => {
      const timer = setTimeout(() => resolve(value), ms);
      signal?.addEventListener('abort', () => {
        clearTimeout(timer);
        reject(new Error('aborted'));
      });
    }),
}));

beforeEach(() => {
  [children, marksEnded, asleep] = [[], [], 0];
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'setInterval', 'clearInterval', 'Date'] });
  vi.spyOn(performance, 'now').mockImplementation(() => Date.now() + asleep);
});
afterEach(() => {
  vi.useRealTimers();
  vi.restoreAllMocks();
});

const pass = async (seconds: number): Promise<void> => void (await vi.advanceTimersByTimeAsync(seconds * 1000));

interface Watched {
  /** What became of it; null while it goes on. */
  outcome: SupervisionEnd | RunFailed | null;
}

/** Starts ranks and lets them come up. */
async function start(ranks: number, more: Partial<Supervision> = {}): Promise<Watched> {
  const watched: Watched = { outcome: null };
  const guardian = { markAttempt: () => 'mark' } as Guardian;
  const commands = Array.from({ length: ranks }, (_, rank) => ({ rank, command: ['program'], env: {} }));
  const signal = new AbortController().signal;
  void supervise({
    run: 'mine',
    guardian,
    ranks: commands,
    heartbeatTimeoutS: 60,
    stop: signal,
    onLine: () => {},
    ...more,
  }).then(
    (end) => (watched.outcome = end),
    (error: unknown) => (watched.outcome = error as RunFailed),
  );
  await pass(0);
  return watched;
}

describe('ranks that are ended because of another one', () => {
  it('get a moment to die of the same, are asked, set going if they are stopped, and killed after their time', async () => {
    const warned: number[] = [];
    const watched = await start(3, { beforeEnd: ({ rank }) => warned.push(rank) });
    children[1].tail.push('its last words');
    children[1].end({ code: 3 });
    await pass(0.19);
    expect(children[0].signals).toEqual([]);
    await pass(0.02);
    expect(children.map(({ signals }) => signals)).toEqual([['SIGTERM', 'SIGCONT'], [], ['SIGTERM', 'SIGCONT']]);
    expect(warned).toEqual([0, 2]);
    children[2].end({ signal: 'SIGTERM' });
    await pass(4.9);
    expect(children[0].signals).toEqual(['SIGTERM', 'SIGCONT']);
    expect(watched.outcome).toBeNull();
    await pass(0.2);
    expect(children[0].signals).toEqual(['SIGTERM', 'SIGCONT', 'SIGKILL']);
    expect(children[2].signals).toEqual(['SIGTERM', 'SIGCONT']);
    expect(watched.outcome).toMatchObject({
      reason: 'rank 1 of 3 ended with exit code 3',
      failure: { exitCode: 3, lastLines: ['its last words'] },
    });
    expect(marksEnded).toEqual(['mark within 5']);
    expect(vi.getTimerCount()).toBe(0);
  });

  it('are those that were started, when the next one cannot be', async () => {
    const commands = ['program', 'missing'].map((command, rank) => ({ rank, command: [command], env: {} }));
    const watched = await start(2, { ranks: commands, graceS: 1 });
    expect(children[0].signals).toEqual(['SIGTERM', 'SIGCONT']);
    await pass(1);
    expect(children[0].signals).toContain('SIGKILL');
    expect(watched.outcome).toMatchObject({ message: 'no such program' });
  });
});

describe('the rank that is reported', () => {
  it('is the one that others follow: a silent one, else one without memory, else one that was killed, else the first', async () => {
    const reasonOf = async (...acts: (() => void)[]): Promise<string> => {
      children = [];
      const watched = await start(2, { heartbeatTimeoutS: 60 });
      children[1].print('up');
      await pass(60.9);
      for (const act of acts) {
        act();
        await pass(0.05);
      }
      await pass(6);
      return (watched.outcome as RunFailed).reason;
    };
    const failed = (): void => children[0].end({ code: 3 });
    expect(await reasonOf(failed, () => children[1].end({ code: 4 }))).toBe('rank 0 of 2 ended with exit code 3');
    const killed = (): void => children[1].end({ signal: 'SIGSEGV' });
    expect(await reasonOf(failed, killed)).toBe('rank 1 of 2 was ended by SIGSEGV');
    const starved = (): void => {
      children[0].print('MemoryError');
      children[0].end({ code: 1 });
    };
    expect(await reasonOf(killed, starved)).toMatch(/^rank 0 of 2 ended with exit code 1: it ran out of memory/);
    // The other one has been silent for sixty seconds a moment later.
    expect(
      await reasonOf(
        () => children[1].end({ signal: 'SIGSEGV' }),
        () => {},
        () => {},
      ),
    ).toMatch(/^rank 0 of 2 hung/);
  });
});

describe('the end of all ranks', () => {
  it('is an orderly one when each ends with 0, after which no one is looked for', async () => {
    const watched = await start(2);
    children[0].end();
    await pass(30);
    expect(watched.outcome).toBeNull();
    expect(children[1].signals).toEqual([]);
    children[1].end();
    await pass(0);
    expect(watched.outcome).toEqual({
      kind: 'done',
      exits: [
        { rank: 0, code: 0, signal: null },
        { rank: 1, code: 0, signal: null },
      ],
    });
    expect(marksEnded).toEqual([]);
    expect(vi.getTimerCount()).toBe(0);
  });
});

describe('a stop', () => {
  it('gives the others ten seconds once the first rank has followed it', async () => {
    const stop = new AbortController();
    const watched = await start(2, { stop: stop.signal });
    stop.abort();
    expect(children.map(({ signals }) => signals)).toEqual([['SIGTERM'], ['SIGTERM']]);
    // However long a checkpoint takes.
    for (let i = 0; i < 50; i++) {
      children[0].print('saving');
      children[1].print('saving');
      await pass(20);
    }
    children[0].end({ code: 130 });
    await pass(9.9);
    expect(children[1].signals).toEqual(['SIGTERM']);
    await pass(0.2);
    expect(children[1].signals).toEqual(['SIGTERM', 'SIGTERM', 'SIGCONT']);
    children[1].end({ signal: 'SIGTERM' });
    await pass(0);
    expect(watched.outcome).toEqual({
      kind: 'stopped',
      exits: [
        { rank: 0, code: 130, signal: null },
        { rank: 1, code: null, signal: 'SIGTERM' },
      ],
    });
    expect(marksEnded).toEqual(['mark within 5']);
    expect(vi.getTimerCount()).toBe(0);
  });

  it('asks in its own way if there is one, and may have a limit', async () => {
    const stop = new AbortController();
    const watched = await start(1, {
      stop: stop.signal,
      stopWithinS: 7,
      askToStop: ([worker]) => worker.send('please'),
    });
    stop.abort();
    await pass(6.9);
    expect(children[0]).toMatchObject({ messages: ['please'], signals: [] });
    await pass(0.2);
    expect(children[0].signals).toEqual(['SIGTERM', 'SIGCONT']);
    await pass(5);
    expect(watched.outcome).toMatchObject({ kind: 'stopped', exits: [{ signal: 'SIGKILL' }] });
  });

  it('does not hide that a rank had failed before it', async () => {
    const stop = new AbortController();
    const watched = await start(2, { stop: stop.signal });
    children[0].end({ code: 3 });
    await pass(0.1);
    stop.abort();
    children[1].end({ code: 130 });
    await pass(5);
    expect(watched.outcome).toMatchObject({ reason: 'rank 0 of 2 ended with exit code 3' });
  });
});

describe('silence', () => {
  it('counts from the last sign of life of a rank, and ends all', async () => {
    const watched = await start(2, { heartbeatTimeoutS: 60 });
    await pass(50);
    children[1].print('still here');
    children[0].print('still here');
    await pass(40);
    children[1].print('still here');
    await pass(20);
    expect(children[0].signals).toEqual([]);
    await pass(3);
    expect(children.map(({ signals }) => signals)).toEqual([
      ['SIGTERM', 'SIGCONT'],
      ['SIGTERM', 'SIGCONT'],
    ]);
    await pass(5);
    expect(watched.outcome).toMatchObject({
      reason: 'rank 0 of 2 hung: no sign of life for 60 s (launch.heartbeat_timeout_s)',
      failure: { signal: null },
    });
  });

  it('is not that of a rank which has ended, nor of one which is being ended', async () => {
    const watched = await start(3, { heartbeatTimeoutS: 10, graceS: 100 });
    children[0].end();
    for (let i = 0; i < 5; i++) {
      await pass(5);
      for (const child of children.slice(1)) child.print('still here');
    }
    expect(children[1].signals).toEqual([]);
    children[2].end({ code: 3 });
    await pass(50);
    children[1].end({ signal: 'SIGTERM' });
    await pass(0);
    expect(watched.outcome).toMatchObject({ reason: 'rank 2 of 3 ended with exit code 3' });
  });

  it('is none of the ranks while something of theirs grows', async () => {
    let size = 0;
    await start(1, { heartbeatTimeoutS: 60, progress: () => size });
    for (let i = 0; i < 10; i++) {
      await pass(50);
      size++;
    }
    expect(children[0].signals).toEqual([]);
    await pass(65);
    expect(children[0].signals).toEqual(['SIGTERM', 'SIGCONT']);
  });

  it('is not the time that this process itself was stopped', async () => {
    await start(1, { heartbeatTimeoutS: 60 });
    await pass(10);
    // A laptop that sleeps, a job that is suspended.
    asleep += 3600_000;
    await pass(40);
    expect(children[0].signals).toEqual([]);
    await pass(11);
    expect(children[0].signals).toEqual(['SIGTERM', 'SIGCONT']);
  });

  it('is also that of a rank which does not follow a stop', async () => {
    const stop = new AbortController();
    const watched = await start(1, { heartbeatTimeoutS: 60, stop: stop.signal });
    stop.abort();
    await pass(70);
    expect(watched.outcome).toMatchObject({ kind: 'stopped', exits: [{ signal: 'SIGKILL' }] });
  });
});
