/** Folders of runs in which others have left pipes and links to devices: what is shown of them, and that all else goes on. */
import { spawnSync } from 'node:child_process';
import {
  chownSync,
  existsSync,
  mkdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { writeMadeEpisodes, writeRun } from '../web/made_runs.js';
import { RunPaths } from '../../src/run/paths.js';
import type { WireRuns } from '../../src/web/wire.js';
import { Place, sleep, until, type Live } from './editrl.js';

let place: Place;
let dashboard: Live;
let at: { readonly url: string; readonly token: string };

function replacedBy(make: (path: string) => void): (path: string) => void {
  return (path) => {
    rmSync(path, { force: true });
    make(path);
  };
}
const pipe = replacedBy((path) => expect(spawnSync('mkfifo', [path]).status).toBe(0));
const zeros = replacedBy((path) => symlinkSync('/dev/zero', path));
const huge = replacedBy((path) => {
  writeFileSync(path, '');
  truncateSync(path, 2 ** 40);
});

const PIPE = 'this is a named pipe (FIFO), not a plain file';
const DEVICE = 'this is a device, not a plain file';

/** Which file of a run is what, and how its status says it. */
const unreadable: Readonly<Record<string, readonly [(paths: RunPaths) => string, (path: string) => void, string]>> = {
  pipe_state: [(paths) => paths.state, pipe, PIPE],
  pipe_record: [(paths) => paths.record, pipe, PIPE],
  pipe_lock: [(paths) => paths.lock, pipe, PIPE],
  pipe_metrics: [(paths) => paths.metrics, pipe, PIPE],
  zero_state: [(paths) => paths.state, zeros, DEVICE],
  zero_metrics: [(paths) => paths.metrics, zeros, DEVICE],
  huge_state: [(paths) => paths.state, huge, 'this has more than 16 MiB'],
  huge_metrics: [(paths) => paths.metrics, huge, 'a line has more than 64 MiB'],
};

beforeAll(async () => {
  place = Place.make();
  const made = (name: string): RunPaths => {
    const options = { name, state: 'interrupted', iteration: 5, numIterations: 10, reason: 'stopped' } as const;
    writeRun(place.runs, options);
    return new RunPaths(place.runs, name);
  };
  made('sound');
  for (const [name, [file, spoil]] of Object.entries(unreadable)) spoil(file(made(name)));
  const inside = made('inside');
  await writeMadeEpisodes(inside, { iteration: 5, prompts: 1, answers: 2, withImages: false });
  pipe(inside.episodes(5));
  mkdirSync(inside.attemptLogsDir(1), { recursive: true });
  pipe(inside.consoleLog(1));
  // A folder of runs that is a link, as where a disk is full, is one like any other.
  mkdirSync(join(place.dir, 'elsewhere'));
  writeRun(join(place.dir, 'elsewhere'), {
    name: 'linked',
    state: 'interrupted',
    iteration: 5,
    numIterations: 10,
    reason: 'stopped',
  });
  symlinkSync(join(place.dir, 'elsewhere/linked'), join(place.runs, 'linked'));

  dashboard = place.start(['dashboard', '--port', '0', '--json', '--exp-dir', place.runs]);
  await until('the dashboard is there', () => dashboard.out().includes('\n') || !dashboard.isAlive());
  at = JSON.parse(dashboard.out()) as typeof at;
});

afterAll(() => {
  dashboard.kill('SIGKILL');
  place.remove();
});

function ask(path: string): Promise<Response> {
  return fetch(at.url + path, {
    headers: { authorization: `Bearer ${at.token}` },
    signal: AbortSignal.timeout(30_000),
  });
}

async function refusalOf(path: string): Promise<string> {
  const reply = await ask(path);
  expect(reply.status).toBe(503);
  return ((await reply.json()) as { error: { message: string } }).error.message;
}

it('the dashboard shows such runs as unreadable with the reason, and the others as ever', async () => {
  let runs: WireRuns['runs'] = [];
  while (runs.length < Object.keys(unreadable).length + 3) {
    ({ runs } = (await (await ask('/api/runs')).json()) as WireRuns);
    await sleep(50);
  }
  const found = Object.fromEntries(runs.map(({ name, state, reason }) => [name, { state, reason }]));
  for (const [name, [, , reason]] of Object.entries(unreadable)) {
    expect(found[name]).toEqual({ state: 'unreadable', reason: expect.stringContaining(reason) as string });
  }
  for (const name of ['sound', 'inside', 'linked']) expect(found[name].state).toBe('interrupted');
});

it('the dashboard reports what is wrong with what a run holds', async () => {
  const run = 'run=0/inside';
  expect(await refusalOf(`/api/episodes?${run}&held_out=false`)).toContain(PIPE);
  expect(await (await ask(`/api/log?${run}`)).text()).toContain(PIPE);
  expect(await refusalOf(`/api/curves?run=0/pipe_metrics&metric=reward/mean`)).toContain(PIPE);
  expect((await ask('/api/run?run=0/sound')).status).toBe(200);
  expect((await ask('/api/run?run=0/linked')).status).toBe(200);
});

/** A run that another user left for somebody to continue. */
it.skipIf(process.getuid?.() !== 0)("another user's run is not continued, evaluated or scored again", async () => {
  const paths = new RunPaths(join(place.dir, 'theirs'), 'bait');
  writeRun(paths.baseExpDir, {
    name: 'bait',
    state: 'interrupted',
    iteration: 5,
    numIterations: 10,
    reason: 'stopped',
  });
  const record = JSON.parse(readFileSync(paths.record, 'utf8')) as { settings: { launch: object } };
  const touched = join(place.dir, 'touched');
  record.settings.launch = { ...record.settings.launch, command: ['touch', touched] };
  writeFileSync(paths.record, JSON.stringify(record));
  chownSync(paths.record, 54321, 54321);
  const exp = ['--exp-dir', paths.baseExpDir];
  for (const verb of [['resume'], ['resume', '--fresh'], ['fork', '--as', 'x'], ['evaluate'], ['rescore']]) {
    const { code, err } = await place.call([verb[0], 'bait', ...verb.slice(1), ...exp]);
    expect({ verb, code, err }).toMatchObject({
      code: 1,
      err: expect.stringContaining('owned by user 54321') as string,
    });
    expect(err).toContain(`launch.command: touch ${touched}`);
  }
  expect(existsSync(touched)).toBe(false);
  expect(await place.call(['report', 'bait', ...exp])).toMatchObject({ code: 0 });
  const trusted = await place.call(['resume', 'bait', '--trust', ...exp]);
  expect(trusted.err).toContain(`launch.command: touch ${touched}`);
});

it('ls and report agree, and show the others', async () => {
  const status = await place.call(['ls', '--exp-dir', place.runs]);
  expect(status.code).toBe(0);
  for (const name of [...Object.keys(unreadable), 'sound', 'inside', 'linked']) expect(status.out).toContain(name);
  for (const [name, [, , reason]] of Object.entries(unreadable)) {
    const report = await place.call(['report', name, '--exp-dir', place.runs]);
    // A report does not ask who holds the run.
    if (name === 'pipe_lock') expect(report).toMatchObject({ code: 0, err: '' });
    else expect(report).toMatchObject({ code: 1, err: expect.stringContaining(reason) as string });
  }
  expect(await place.call(['report', 'sound', '--exp-dir', place.runs])).toMatchObject({ code: 0, err: '' });
});

it.skipIf(process.platform !== 'linux')(
  'the dashboard has stayed under 300 MB, and ends when it is told to',
  async () => {
    const [, kilobytes] = /^VmHWM:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${dashboard.pid}/status`, 'utf8')) ?? [];
    expect(Number(kilobytes) / 1000).toBeLessThan(300);
    dashboard.kill('SIGTERM');
    expect(await dashboard.ended).toMatchObject({ code: 0, signal: null });
  },
);
