import { spawn, spawnSync, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { hostname } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { main } from '../../src/cli/main.js';
import { submissionsDir, writeSubmission } from '../../src/launch/slurm/queue.js';
import { stopRun } from '../../src/launch/ownership/stop.js';
import { processStart, realLockWorld } from '../../src/run/claim/lock.js';
import { RunPaths } from '../../src/run/paths.js';
import { readStopRequest } from '../../src/run/claim/stop_request.js';
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

/** A process that holds a run and, when asked to end, says so in its state, or does not. It sends what it was asked. */
async function owner(paths: RunPaths, obeys: boolean): Promise<ChildProcess> {
  const state = JSON.stringify({
    state: 'interrupted',
    iteration: 5,
    num_iterations: 10,
    reason: 'stopped on request',
  });
  const script = `
    const fs = require('node:fs');
    const [lock, request, state, text] = process.argv.slice(1);
    setInterval(() => {
      if (!fs.existsSync(request) || text === '') return;
      process.send(fs.readFileSync(request, 'utf8'));
      fs.writeFileSync(state, text);
      fs.rmSync(request);
      fs.rmSync(lock);
    }, 20);
    process.send('ready');`;
  const files = [paths.lock, paths.stopRequest, paths.state];
  const child = spawn(process.execPath, ['-e', script, '--', ...files, obeys ? state : ''], {
    stdio: ['ignore', 'ignore', 'ignore', 'ipc'],
  });
  children.push(child);
  await once(child, 'message');
  const pid = child.pid ?? -1;
  folder.lock(paths, { host: hostname(), pid, process_start: processStart(pid) });
  return child;
}

it.each([
  [[], 'save', 'stopped'],
  [['--now'], 'now', 'killed'],
])('asks the owner by a file to end (%j), and waits until it has', async (flags, asked, outcome) => {
  const paths = folder.make('mine', 'running');
  const child = await owner(paths, true);
  const told = once(child, 'message');
  expect(await main(['stop', 'mine', ...flags, '--exp-dir', folder.dir, '--json'])).toBe(0);
  expect(await told).toEqual([asked, undefined]);
  expect(JSON.parse(written.out)).toMatchObject({ runs: [{ run_name: 'mine', outcome, status: { iteration: 5 } }] });
  expect(existsSync(paths.lock)).toBe(false);
  // The process may own other runs.
  expect([child.exitCode, child.signalCode]).toEqual([null, null]);
});

it.each([
  [false, 'stopped', 'its process ended before it could save a checkpoint'],
  [true, 'killed', 'killed with `editrl stop --now`'],
] as const)(
  'leaves no lock and no running state of an owner that ends without a word (%j)',
  async (now, outcome, reason) => {
    const paths = folder.make('gone', 'running');
    folder.lock(paths, { host: hostname(), pid: 42, process_start: '1' });
    let looks = 0;
    const world = {
      ...realLockWorld(),
      processStart: (pid: number) => (pid !== 42 ? processStart(pid) : looks++ < 2 ? '1' : null),
    };
    const result = await stopRun(paths, { now, onProgress: () => undefined }, world);
    expect(result).toMatchObject({ outcome, status: { state: 'interrupted', reason } });
    expect(existsSync(paths.lock)).toBe(false);
  },
);

it('stops waiting on request, and reports that the run continues', async () => {
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

it('asks a run of another host by the same file', async () => {
  const theirs = folder.make('theirs', 'running');
  folder.lock(theirs, { host: 'node7', pid: 12, process_start: '1' });
  const stop = new AbortController();
  stop.abort();
  expect(await stopRun(theirs, { now: false, onProgress: () => undefined, stop: stop.signal })).toMatchObject({
    outcome: 'still_stopping',
  });
  expect(readStopRequest(theirs)).toBe('save');
});

it('explains how to end a run whose process does not read the file', async () => {
  const paths = folder.make('stubborn', 'running');
  const child = await owner(paths, false);
  const said: string[] = [];
  const stop = new AbortController();
  const onProgress = (line: string): void => {
    said.push(line);
    stop.abort();
  };
  // Six seconds pass at every look.
  let now = Date.now();
  const world = { ...realLockWorld(), nowMs: () => (now += 6_000) };
  expect(await stopRun(paths, { now: true, onProgress, stop: stop.signal }, world)).toMatchObject({
    outcome: 'still_stopping',
  });
  expect(said[0]).toBe(
    `stubborn: process ${child.pid} has not ended it yet; kill -KILL ${child.pid} would, with every other run that it holds`,
  );
});

it('takes a run that has not begun out of the queue', async () => {
  const programs = join(folder.dir, 'bin');
  mkdirSync(programs);
  const calls = join(folder.dir, 'calls');
  const squeue = 'echo "7_0|n|PENDING|Priority|"';
  writeFileSync(join(programs, 'squeue'), `#!/bin/sh\n${squeue}\n`, { mode: 0o755 });
  writeFileSync(join(programs, 'scancel'), `#!/bin/sh\necho "$*" >>'${calls}'\n`, { mode: 0o755 });
  vi.stubEnv('PATH', `${programs}:/usr/bin:/bin`);
  const arrays = [{ name: 'editrl-x', job_id: '7', runs: ['waits'] }];
  mkdirSync(join(submissionsDir(folder.dir), 'one'), { recursive: true });
  writeSubmission(join(submissionsDir(folder.dir), 'one'), { format: 1, submitted_at: '', arrays });
  expect(await main(['stop', 'waits', '--exp-dir', folder.dir])).toBe(0);
  expect(readFileSync(calls, 'utf8')).toBe('7_0\n');
});

it('stops a run of this machine while Slurm does not answer', async () => {
  vi.stubEnv('PATH', '/nowhere');
  const dir = join(submissionsDir(folder.dir), 'one');
  mkdirSync(dir, { recursive: true });
  const arrays = [{ name: 'editrl-x', job_id: '7', runs: ['queued'] }];
  writeSubmission(dir, { format: 1, submitted_at: '', arrays });
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
  expect(written.out).toBe('No run is running.\n');
});

it('ends a sweep by its name, and with --all before the runs of which it would start more', async () => {
  const paths = new RunPaths(folder.dir, 'search.sweep');
  mkdirSync(paths.dir);
  await owner(paths, true);
  expect(await main(['stop', 'search', '--exp-dir', folder.dir])).toBe(0);
  expect(written.out).toBe(
    [
      'stopping the sweep search and its runs',
      'the sweep search: stopped with its runs. Repeat the `editrl sweep` command to continue.\n',
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
