import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { ConfigError } from '../../../src/core/errors.js';
import { RunFailed } from '../../../src/launch/processes/failure.js';
import { Guardian } from '../../../src/launch/processes/guardian.js';
import { rankEnvironment, supervise, type Started, type Supervision } from '../../../src/launch/processes/supervise.js';

/** Carried by everything that a test starts. */
const MARK = 'EDITRL_TEST_MARK';

let dir: string;
let guardian: Guardian;
let marked = 0;
beforeAll(() => {
  dir = mkdtempSync(join(tmpdir(), 'editrl-supervise-'));
});
afterAll(() => rmSync(dir, { recursive: true, force: true }));
beforeEach(() => {
  guardian = new Guardian();
  marked++;
});
afterEach(() => guardian.close());

/** Processes of this test that run (Linux). */
function left(): number[] {
  const entry = `${MARK}=${process.pid}.${marked}`;
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .filter((pid) => {
      try {
        return readFileSync(`/proc/${pid}/environ`, 'utf8').split('\0').includes(entry);
      } catch {
        return false;
      }
    })
    .map(Number);
}

interface Watched {
  readonly lines: string[];
  readonly end: ReturnType<typeof supervise>;
}

/** Starts `sh -c` with one text per rank. */
function start(scripts: readonly string[], more: Partial<Supervision> = {}): Watched {
  const lines: string[] = [];
  const placement = { devices: [], threads: 1 };
  const place = { processes: scripts.length, placement, port: 4242 };
  const end = supervise({
    run: 'mine',
    guardian,
    ranks: scripts.map((script, rank) => ({
      rank,
      command: ['/bin/sh', '-c', script],
      env: rankEnvironment(rank, place, { [MARK]: `${process.pid}.${marked}` }),
    })),
    heartbeatTimeoutS: 60,
    graceS: 0.3,
    stop: new AbortController().signal,
    onLine: (rank, line) => lines.push(`${rank}: ${line}`),
    ...more,
  });
  end.catch(() => {});
  return { lines, end };
}

async function failure({ end }: Watched): Promise<RunFailed> {
  const error = await end.then(
    () => null,
    (cause: unknown) => cause,
  );
  expect(error).toBeInstanceOf(RunFailed);
  return error as RunFailed;
}

/** A control group of 100 MiB that a process can put itself into; null where none can be made. */
function limitedGroup(): { readonly procs: string; remove(): void } | null {
  const groups = readFileSync('/proc/self/cgroup', 'utf8');
  const places: readonly (readonly [string | undefined, string, string])[] = [
    [/^\d+:memory:(.*)$/m.exec(groups)?.[1], '/sys/fs/cgroup/memory', 'memory.limit_in_bytes'],
    [/^0::(.*)$/m.exec(groups)?.[1], '/sys/fs/cgroup', 'memory.max'],
  ];
  for (const [own, root, limit] of places) {
    const group = join(root, own ?? '', `editrl-test-${process.pid}`);
    try {
      mkdirSync(group);
    } catch {
      continue; // Another version of control groups, or not root.
    }
    try {
      writeFileSync(join(group, limit), String(100 * 2 ** 20));
      return { procs: join(group, 'cgroup.procs'), remove: () => rmdirSync(group) };
    } catch {
      rmdirSync(group);
    }
  }
  return null;
}

async function until(what: string, holds: () => boolean): Promise<void> {
  for (let i = 0; !holds(); i++) {
    if (i > 2000) throw new Error(`waited in vain until ${what}`);
    await delay(10);
  }
}

describe('ranks', () => {
  it('need a program that exists', async () => {
    const none = { rank: 0, command: ['/no/such/program'], env: {} };
    const { end } = start([], { ranks: [none] });
    await expect(end).rejects.toThrow(ConfigError);
    await expect(end).rejects.toThrow("'/no/such/program' cannot be started (ENOENT)");
  });
});

describe('a rank that ends badly', () => {
  it('ends the others, and is reported with its exit code and its last lines', async () => {
    const watched = start(['sleep 60', 'echo one; echo two >&2; exit 3']);
    const error = await failure(watched);
    expect(error).toMatchObject({ failure: { rank: 1, exitCode: 3, signal: null }, exitCode: 1 });
    expect(error.reason).toBe('rank 1 of 2 ended with exit code 3');
    expect([...error.failure.lastLines].sort()).toEqual(['one', 'two']);
    expect(error.message).toMatch(/Its last lines:\n {2}\| (one|two)\n {2}\| (one|two)/);
    expect(left()).toEqual([]);
  });

  it('is reported to have had no memory when it says so, with what to do', async () => {
    const said = await failure(start(['echo torch.OutOfMemoryError: CUDA out of memory.; exit 1']));
    expect(said.reason).toBe(
      "rank 0 ended with exit code 1: the GPU's memory was full (torch.OutOfMemoryError: CUDA out of memory.)",
    );
    expect(said.failure.advice).toContain('optimizer.per_device_batch_size');
    expect(said.toText()).toMatch(/\n {2}Make its micro-batches smaller .*\n {2}Run the same command again/);
    const inner = await failure(start(['exit 137']));
    expect(inner.reason).toBe('rank 0 ended with exit code 137 (a process that it ran was ended by SIGKILL)');
    expect(inner.failure.advice).toBeNull();
  });

  it('takes along what it started, also what ignores SIGTERM or left its group', async () => {
    const child = "(trap '' TERM; while :; do sleep 1; done) & setsid sleep 60 & echo started; exit 4";
    const error = await failure(start([child]));
    expect(error).toMatchObject({ failure: { exitCode: 4 } });
    expect(left()).toEqual([]);
  });
});

describe('a rank that runs out of memory', () => {
  const greedy = `"${process.execPath}" --max-old-space-size=32 -e 'const all = []; for (;;) all.push(new Array(1e4).fill(1.5))'`;

  it.each([
    ['itself', `exec ${greedy}`, 'was ended by SIGABRT'],
    [
      'in a process that it runs',
      `${greedy}; exit $?`,
      'ended with exit code 134 (a process that it ran was ended by SIGABRT)',
    ],
  ])("fills V8's heap %s", async (_who, script, end) => {
    const error = await failure(start(['sleep 60', script]));
    expect(error).toMatchObject({ failure: { rank: 1 } });
    expect(error.reason).toMatch(/^rank 1 of 2 /);
    expect(error.reason).toContain(`${end}: the heap of Node's V8 was full (FATAL ERROR: `);
    expect(error.failure.advice).toContain('--max-old-space-size=');
    expect(left()).toEqual([]);
  });

  it('is rejected an allocation', async () => {
    const error = await failure(start(['ulimit -v 100000; exec tail /dev/zero']));
    expect(error.reason).toBe('rank 0 ended with exit code 1: it ran out of memory (tail: memory exhausted)');
    expect(error.failure.advice).toContain('launch.processes');
  });

  const group = limitedGroup();
  afterAll(() => group?.remove());
  if (group === null) console.warn('no rank is killed by the kernel here: control groups cannot be made (root only)');

  it.skipIf(group === null)('is killed by the kernel at the limit of its control group', async () => {
    const eat = `exec "${process.execPath}" -e 'const all = []; for (;;) all.push(Buffer.alloc(1e6, 1))'`;
    const watched = start([`echo $$ > ${group?.procs}; sleep 1.5; ${eat}`]);
    const error = await failure(watched);
    expect(error).toMatchObject({ failure: { signal: 'SIGKILL' } });
    expect(error.reason).toBe(
      'rank 0 was ended by SIGKILL: the system ran out of memory (the kernel killed a process for it, limit 100 MiB)',
    );
    expect(error.failure.advice).toContain('launch.slurm.mem');
  });

  it('is not taken for one that somebody killed', async () => {
    const error = await failure(start(['kill -s KILL $$']));
    expect(error).toMatchObject({ reason: 'rank 0 was ended by SIGKILL', failure: { advice: null } });
  });
});

describe('a silent rank', () => {
  it('counts as hung, though it is stopped', async () => {
    // Its time is long: what is stopped has to be set going to end before it.
    const stopped = "trap 'echo ending; exit 9' TERM; kill -s STOP $$; sleep 60";
    const watched = start(['sleep 60', stopped], { heartbeatTimeoutS: 0.4, graceS: 50 });
    const error = await failure(watched);
    expect(error.reason).toMatch(/^rank \d of 2 hung: no sign of life for 0.4 s/);
    expect(watched.lines).toEqual(['1: ending']);
    expect(left()).toEqual([]);
  });
});

describe('a stop', () => {
  it('kills those that take too long, and all at once on request', async () => {
    const stop = new AbortController();
    const deaf = "trap '' TERM; echo up; while :; do sleep 0.05; done";
    const slow = start([deaf], { stop: stop.signal, stopWithinS: 0.1 });
    await until('it is up', () => slow.lines.length === 1);
    stop.abort();
    expect(await slow.end).toMatchObject({ kind: 'stopped', exits: [{ signal: 'SIGKILL' }] });

    const kill = new AbortController();
    const other = start([deaf], { kill: kill.signal });
    await until('it is up', () => other.lines.length === 1);
    kill.abort();
    expect(await other.end).toMatchObject({ kind: 'stopped', exits: [{ signal: 'SIGKILL' }] });
    expect(left()).toEqual([]);
  });
});

describe('the guardian', () => {
  it('ends everything when its pipe ends, also what left its group', async () => {
    const watched = start(['setsid sleep 60 & echo up; sleep 60']);
    await until('it is up', () => watched.lines.length === 1);
    expect(left().length).toBeGreaterThan(1);
    guardian.close();
    await until('nothing is left', () => left().length === 0);
    expect(await failure(watched)).toMatchObject({ failure: { signal: 'SIGTERM' } });
  });

  it('is replaced when somebody kills it', async () => {
    let started: Started | null = null;
    const watched = start(['echo up; sleep 60'], { onStarted: (what) => (started = what) });
    await until('it is up', () => watched.lines.length === 1);
    const guardians = (): number[] =>
      readFileSync(`/proc/self/task/${process.pid}/children`, 'utf8')
        .split(' ')
        .filter((pid) => pid !== '' && readFileSync(`/proc/${pid}/cmdline`, 'utf8').includes('editrl-guardian'))
        .map(Number);
    const [first] = guardians();
    process.kill(first, 'SIGKILL');
    await until('another one is there', () => guardians().some((pid) => pid !== first));
    expect(started).not.toBeNull();
    guardian.close();
    await until('nothing is left', () => left().length === 0);
    await failure(watched);
  });
});
