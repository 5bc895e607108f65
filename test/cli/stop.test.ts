import { spawn, spawnSync, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, readFileSync, realpathSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { hostname } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { main } from '../../src/cli/main.js';
import { submissionsDir, writeSubmission } from '../../src/launch/slurm/record.js';
import { runMark } from '../../src/launch/ownership/holder.js';
import { realStopWorld, stopRun, type StopWorld } from '../../src/launch/ownership/stop.js';
import { processStart } from '../../src/run/lock.js';
import { RunPaths } from '../../src/run/paths.js';
import { readState } from '../../src/run/state.js';
import { capture, RunFolder } from './run_directory.js';

let folder: RunFolder;
let written: { out: string; error: string };
const children: ChildProcess[] = [];
beforeEach(() => {
  folder = new RunFolder();
  written = capture();
});
afterEach(() => {
  vi.restoreAllMocks();
  vi.unstubAllEnvs();
  for (const child of children.splice(0)) child.kill('SIGKILL');
  folder.remove();
});

/** A process that holds a run and, when asked to end, says so in its state, or does not. */
async function owner(paths: RunPaths, obeys: boolean): Promise<ChildProcess> {
  const state = JSON.stringify({
    state: 'interrupted',
    iteration: 5,
    num_iterations: 10,
    reason: 'stopped on request',
  });
  const script = `
    const fs = require('node:fs');
    const [lock, state, text] = process.argv.slice(1);
    process.on('SIGTERM', () => {
      if (text === '') return;
      fs.writeFileSync(state, text);
      fs.rmSync(lock);
      process.exit(130);
    });
    setInterval(() => {}, 1000);
    process.send('ready');`;
  const child = spawn(process.execPath, ['-e', script, '--', paths.lock, paths.state, obeys ? state : ''], {
    stdio: ['ignore', 'ignore', 'ignore', 'ipc'],
    env: { ...process.env, ...runMark(paths) },
  });
  children.push(child);
  await once(child, 'message');
  const pid = child.pid ?? -1;
  folder.lock(paths, { host: hostname(), pid, process_start: processStart(pid) });
  return child;
}

it('asks the owner to end, and waits until it has', async () => {
  const paths = folder.make('mine', 'running');
  await owner(paths, true);
  expect(await main(['stop', 'mine', '--exp-dir', folder.dir])).toBe(0);
  expect(written.out).toBe('mine: interrupted at iteration 5/10; `editrl resume mine` continues it\n');
  expect(existsSync(paths.lock)).toBe(false);
});

it('kills with --now, and leaves neither a lock nor a state that says it runs', async () => {
  const paths = folder.make('stubborn', 'running');
  const child = await owner(paths, false);
  const ended = once(child, 'exit');
  expect(await main(['stop', 'stubborn', '--now', '--exp-dir', folder.dir, '--json'])).toBe(0);
  expect(JSON.parse(written.out)).toMatchObject({ runs: [{ run_name: 'stubborn', outcome: 'killed' }] });
  expect(readState(paths)).toMatchObject({ state: 'interrupted', reason: 'killed with `editrl stop --now`' });
  expect(existsSync(paths.lock)).toBe(false);
  expect(await ended).toEqual([null, 'SIGKILL']);
});

it.skipIf(process.platform !== 'linux')(
  'sends nothing to a process that is not that of the run, whatever the lock says',
  async () => {
    const bystander = (env: NodeJS.ProcessEnv = {}): ChildProcess => {
      const child = spawn('sleep', ['1000'], { stdio: 'ignore', env: { PATH: process.env['PATH'], ...env } });
      children.push(child);
      return child;
    };
    const other = folder.make('other', 'running');
    const paths = folder.make('mine', 'running');
    for (const [child, start, why] of [
      [bystander(), true, 'the process has no EDITRL_RUN in its environment, as workers have'],
      [bystander(runMark(other)), true, `the process works on another run, ${realpathSync(other.dir)}`],
      [bystander(runMark(paths)), false, 'its lock says that the process started at no known time, which it did not'],
    ] as const) {
      const pid = child.pid ?? -1;
      folder.lock(paths, { host: hostname(), pid, process_start: start ? processStart(pid) : null });
      for (const now of [[], ['--now']]) {
        written.error = '';
        expect(await main(['stop', 'mine', ...now, '--exp-dir', folder.dir])).toBe(1);
        expect(written.error).toContain(
          `the lock of run 'mine' names process ${pid}, which is not known to be the run's: ${why}. It was sent no signal`,
        );
      }
      expect(child.exitCode ?? child.signalCode).toBeNull();
      expect(processStart(pid)).not.toBeNull();
      expect(readState(paths)).toMatchObject({ state: 'running' });
    }
  },
);

/** A run that process 42 of this machine holds, and a world in which the test says whether that lives and sees what it is sent. */
function heldBy42(): { paths: RunPaths; sent: string[]; world: StopWorld; lives: () => boolean } {
  const paths = folder.make('held', 'running');
  folder.lock(paths, { host: hostname(), pid: 42, process_start: '1' });
  const sent: string[] = [];
  const held = { paths, sent, lives: () => !sent.includes('42 SIGKILL: interrupted') };
  let now = Date.now();
  const world: StopWorld = {
    ...realStopWorld(),
    whyNotHolder: () => null,
    nowMs: () => (now += 1_000),
    processStart: (pid) => (pid !== 42 ? processStart(pid) : held.lives() ? '1' : null),
    send: (pid, signal) => sent.push(`${pid} ${signal}: ${readState(paths)?.state ?? ''}`),
  };
  return Object.assign(held, { world });
}

it('holds a process still before it says that the run is interrupted, and kills it then: else its launcher has the last word', async () => {
  const { paths, sent, world } = heldBy42();
  const result = await stopRun(paths, { now: true, onProgress: () => undefined }, world);
  expect(result).toMatchObject({ outcome: 'killed', status: { state: 'interrupted' } });
  expect(sent).toEqual(['42 SIGSTOP: running', '42 SIGKILL: interrupted']);
});

it('kills a run again that its launcher has started meanwhile, and not one that somebody else has', async () => {
  const pids = [42, 43];
  for (const [launchers, killed] of [
    [[7, 7], pids],
    [[7, 8], [42]],
    [[7, null], [42]],
    // While it pauses before a restart, the launcher holds the run itself.
    [[null, 42], pids],
  ] as const) {
    const paths = folder.make('held', 'running');
    const hold = (pid: number): void => folder.lock(paths, { host: hostname(), pid, process_start: '1' });
    hold(42);
    const gone = new Set<number>();
    let now = Date.now();
    const world: StopWorld = {
      ...realStopWorld(),
      whyNotHolder: () => null,
      nowMs: () => (now += 500),
      processStart: (pid) => (gone.has(pid) ? null : '1'),
      launcherOf: (pid) => {
        const launcher = launchers[pids.indexOf(pid)] ?? null;
        return launcher === null ? null : { pid: launcher, start: '1' };
      },
      send: (pid, signal) => {
        if (signal !== 'SIGKILL') return;
        gone.add(pid);
        if (pid === 42) hold(43);
      },
    };
    expect(await stopRun(paths, { now: true, onProgress: () => undefined }, world)).toMatchObject({
      outcome: 'killed',
    });
    expect([...gone]).toEqual(killed);
  }
});

it('sends nothing to a number whose process has just ended: it may be the number of another one', async () => {
  for (const now of [false, true]) {
    const held = heldBy42();
    let looks = 0;
    held.lives = () => looks++ === 0;
    const result = await stopRun(held.paths, { now, onProgress: () => undefined }, held.world);
    expect(result).toMatchObject({ outcome: now ? 'killed' : 'stopped', status: { state: 'interrupted' } });
    expect(held.sent).toEqual([]);
  }
});

it('stops waiting when told to, and says that the run goes on', async () => {
  const paths = folder.make('stubborn', 'running');
  await owner(paths, false);
  const stop = new AbortController();
  const waiting = stopRun(paths, { now: false, onProgress: () => undefined, stop: stop.signal });
  stop.abort();
  expect(await waiting).toMatchObject({ outcome: 'still_stopping', status: { state: 'running' } });
});

it('says of a run that does not run what it is', async () => {
  folder.make('done', 'finished');
  folder.make('gone', 'running');
  expect(await main(['stop', 'done', 'gone', '--exp-dir', folder.dir])).toBe(0);
  expect(written.out.trimEnd().split('\n').sort()).toEqual([
    'done is not running: finished at iteration 4/10',
    'gone is not running: dead at iteration 4/10',
  ]);
});

it('says where a run of another host has to be stopped, and stops the others all the same', async () => {
  const theirs = folder.make('theirs', 'running');
  folder.lock(theirs, { host: 'node7', pid: 12, process_start: '1' });
  const job = folder.make('job', 'running');
  folder.lock(job, { host: 'node8', pid: 13, process_start: '1', slurm_job_id: '99' });
  const mine = folder.make('mine', 'running');
  await owner(mine, true);
  expect(await main(['stop', '--all', '--exp-dir', folder.dir])).toBe(1);
  expect(written.error).toMatch(
    /run 'theirs' is held by process 12 on node7 .*\n {2}Stop it there: ssh node7 kill -TERM 12/,
  );
  expect(written.error).toContain('scancel --signal=TERM 99');
  expect(written.out).toContain('mine: interrupted');
});

it("asks a run of another trainer by a file: a signal would end its process's other runs, too", async () => {
  const [first, second] = [folder.make('first', 'running'), folder.make('second', 'running')];
  for (const paths of [first, second]) folder.setCommand(paths, ['python3', 'train.py']);
  const script = `
    const fs = require('node:fs');
    const [lock, request] = process.argv.slice(1);
    setInterval(() => {
      if (!fs.existsSync(request)) return;
      process.send(fs.readFileSync(request, 'utf8'));
      fs.rmSync(request);
      fs.rmSync(lock, { force: true });
    }, 20);
    process.send('ready');`;
  const child = spawn(process.execPath, ['-e', script, '--', first.lock, first.stopRequest], {
    stdio: ['ignore', 'ignore', 'ignore', 'ipc'],
  });
  children.push(child);
  await once(child, 'message');
  const pid = child.pid ?? -1;
  const hold = (paths: RunPaths): void =>
    folder.lock(paths, { host: hostname(), pid, process_start: processStart(pid) });
  hold(second);
  for (const [args, asked] of [
    [[], 'save'],
    [['--now'], 'now'],
  ] as const) {
    hold(first);
    const told = once(child, 'message');
    expect(await main(['stop', 'first', ...args, '--exp-dir', folder.dir])).toBe(0);
    expect(await told).toEqual([asked, undefined]);
    expect(existsSync(second.lock)).toBe(true);
    expect([child.exitCode, child.signalCode]).toEqual([null, null]);
  }
});

it('says how to end a run of another trainer whose process does not read its file', async () => {
  const paths = folder.make('stubborn', 'running');
  folder.setCommand(paths, ['python3', 'train.py']);
  const child = await owner(paths, false);
  const said: string[] = [];
  const stop = new AbortController();
  const onProgress = (line: string): void => {
    said.push(line);
    stop.abort();
  };
  // Six seconds pass at every look.
  let now = Date.now();
  const world = { ...realStopWorld(), nowMs: () => (now += 6_000) };
  expect(await stopRun(paths, { now: true, onProgress, stop: stop.signal }, world)).toMatchObject({
    outcome: 'still_stopping',
  });
  expect(said[0]).toBe(
    `stubborn: process ${child.pid} has not ended it yet; kill -KILL ${child.pid} would, with every other run that it holds`,
  );
});

it('takes a run that has not begun out of the queue of its cluster', async () => {
  const programs = join(folder.dir, 'bin');
  mkdirSync(programs);
  const calls = join(folder.dir, 'calls');
  const squeue = '[ "$1" = --clusters=alpha ] && echo "7_0|n|PENDING|Priority|"';
  writeFileSync(join(programs, 'squeue'), `#!/bin/sh\n${squeue}\n`, { mode: 0o755 });
  writeFileSync(join(programs, 'scancel'), `#!/bin/sh\necho "$*" >>'${calls}'\n`, { mode: 0o755 });
  vi.stubEnv('PATH', `${programs}:/usr/bin:/bin`);
  const arrays = [{ name: 'editrl-x', cluster: 'alpha', job_id: '7', runs: ['waits'] }];
  mkdirSync(join(submissionsDir(folder.dir), 'one'), { recursive: true });
  writeSubmission(join(submissionsDir(folder.dir), 'one'), {
    format: 1,
    submitted_at: '',
    arrays,
    judges: [],
    farewells: [],
  });
  expect(await main(['stop', 'waits', '--exp-dir', folder.dir])).toBe(0);
  expect(readFileSync(calls, 'utf8')).toBe('--clusters=alpha 7_0\n');
});

it('stops a run of this machine while Slurm does not answer', async () => {
  vi.stubEnv('PATH', '/nowhere');
  const dir = join(submissionsDir(folder.dir), 'one');
  mkdirSync(dir, { recursive: true });
  const arrays = [{ name: 'editrl-x', cluster: null, job_id: '7', runs: ['queued'] }];
  writeSubmission(dir, { format: 1, submitted_at: '', arrays, judges: [], farewells: [] });
  folder.make('queued', 'queued');
  await owner(folder.make('mine', 'running'), true);
  expect(await main(['stop', 'mine', 'queued', '--exp-dir', folder.dir])).toBe(1);
  expect(written.out).toContain('mine: interrupted');
  expect(written.error).toMatch(/^editrl: queued: .*squeue/);
});

it.each([[], ['--now']])(
  'reports locks that cannot be read, and stops the others all the same %j',
  async (...flags) => {
    const spoiled: readonly (readonly [string, (path: string) => void])[] = [
      ['pipe', (path) => void spawnSync('mkfifo', [path])],
      ['empty', (path) => writeFileSync(path, '{}')],
      ['zero', (path) => symlinkSync('/dev/zero', path)],
      ['torn', (path) => writeFileSync(path, '{"token": "a", "pid"')],
      ['null', (path) => writeFileSync(path, 'null')],
    ];
    for (const [name, spoil] of spoiled) spoil(folder.make(name, 'running').lock);
    const sweep = new RunPaths(folder.dir, 'matrix.sweep');
    mkdirSync(sweep.dir);
    spawnSync('mkfifo', [sweep.lock]);
    await owner(folder.make('mine', 'running'), true);
    expect(await main(['stop', '--all', '--exp-dir', folder.dir, ...flags])).toBe(1);
    expect(written.out).toContain('mine: ');
    for (const [name] of spoiled) expect(written.error).toContain(`editrl: ${name}: `);
    expect(written.error).toContain('editrl: the sweep matrix: ');
  },
);

it('wants names or --all, and not both', async () => {
  expect(await main(['stop', '--exp-dir', folder.dir])).toBe(2);
  expect(await main(['stop', 'x', '--all', '--exp-dir', folder.dir])).toBe(2);
  expect(await main(['stop', '--all', '--exp-dir', folder.dir])).toBe(0);
  expect(written.out).toBe('No run is held by a process.\n');
});

it('ends a sweep by its name, and with --all before the runs of which it would start more', async () => {
  const paths = new RunPaths(folder.dir, 'search.sweep');
  mkdirSync(paths.dir);
  await owner(paths, true);
  expect(await main(['stop', 'search', '--exp-dir', folder.dir])).toBe(0);
  expect(written.out).toBe(
    [
      'the sweep search and its runs are told to end',
      'the sweep search: stopped, with its runs; the same `editrl sweep` command continues it\n',
    ].join('\n'),
  );
  expect(await main(['stop', 'search', '--exp-dir', folder.dir])).toBe(1);
  rmSync(paths.state);
  await owner(paths, true);
  const run = folder.make('search__a-1', 'running');
  await owner(run, true);
  written.out = '';
  expect(await main(['stop', '--all', '--exp-dir', folder.dir, '--json'])).toBe(0);
  expect(JSON.parse(written.out)).toMatchObject({
    sweeps: [{ experiment: 'search', outcome: 'stopped' }],
    runs: [{ run_name: 'search__a-1', outcome: 'stopped' }],
  });
});
