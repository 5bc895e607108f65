/** The dashboard's server as strangers and the page ask it. */
import {
  appendFileSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { hostname } from 'node:os';
import { join } from 'node:path';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { recordGrid, writeMadeEpisodes, writeRun } from './made_runs.js';
import { processStart } from '../../src/run/claim/lock.js';
import { readMetrics } from '../../src/run/metrics.js';
import { compareRead } from '../../src/run/report/compare.js';
import { readRun } from '../../src/run/report/read.js';
import { ownExperiment } from '../../src/launch/sweep/lock.js';
import { smooth } from '../../src/core/curves.js';
import { comparisonFile, runFile } from '../../src/web/comparison.js';
import { startDashboard, type Dashboard } from '../../src/web/server.js';
import type {
  WireComparison,
  WireCurves,
  WireEvent,
  WireLog,
  WireMatrix,
  WireRunPage,
  WireRuns,
} from '../../src/web/wire.js';
import { rawStatus, until } from '../core/http/client.js';
import { testFolders } from '../support/folder.js';
import { loadTrained } from '../config/trained.js';

const folder = testFolders('dashboard');
const token = 'the-token-of-the-test';
const open: Dashboard[] = [];
afterEach(async () => {
  vi.unstubAllEnvs();
  for (const dashboard of open.splice(0)) await dashboard.close();
});

async function serve(dir: string, program: readonly string[] = []) {
  const defects: unknown[] = [];
  const dashboard = await startDashboard({
    port: 0,
    token,
    folders: [dir],
    program,
    onDefect: (error) => defects.push(error),
    page: {},
  });
  open.push(dashboard);
  await dashboard.read;
  const ask = (path: string, init: RequestInit = {}) =>
    fetch(`${dashboard.url}${path}`, { ...init, headers: { authorization: `Bearer ${token}`, ...init.headers } });
  return { url: dashboard.url, defects, ask };
}

async function errorOf(reply: Response): Promise<string> {
  return ((await reply.json()) as { error: { message: string } }).error.message;
}

/** Events of a stream until enough came. */
async function events<E>(reply: Response, enough: (events: readonly E[]) => boolean): Promise<E[]> {
  const found: E[] = [];
  let rest = '';
  const decoder = new TextDecoder();
  for await (const bytes of reply.body ?? []) {
    const parts = (rest + decoder.decode(bytes as Uint8Array, { stream: true })).split('\n\n');
    rest = parts.pop() ?? '';
    for (const part of parts) if (part.startsWith('data: ')) found.push(JSON.parse(part.slice(6)) as E);
    if (enough(found)) break;
  }
  return found;
}

function made(dir: string, name = 'run', state: 'finished' | 'interrupted' = 'interrupted') {
  return writeRun(dir, { name, state, iteration: 5, numIterations: 10, reason: 'stopped on request' });
}

describe('who asks', () => {
  it.each([
    '/api/runs',
    '/api/run?run=0/run',
    '/api/events',
    '/api/image/x',
    '/api/log?run=0/run',
    '/api/report?run=0/run',
  ])('needs the token for %s', async (path) => {
    const { url } = await serve(folder());
    expect((await fetch(url + path)).status).toBe(401);
    const wrong = await fetch(url + path, { headers: { authorization: `Bearer ${token}x` } });
    expect(wrong.status).toBe(401);
    expect(await errorOf(wrong)).toContain('this one is wrong');
  });

  it.each<[string, number, readonly string[]]>([
    ['itself', 200, ['host: HOST', 'sec-fetch-site: same-origin']],
    ['localhost, as through a tunnel', 200, ['host: localhost:9999']],
    ['its own page', 200, ['host: HOST', 'origin: http://HOST', 'sec-fetch-site: same-origin']],
    ['a page of another site', 403, ['host: HOST', 'origin: http://evil.example']],
    ['a page of another port', 403, ['host: HOST', 'origin: http://127.0.0.1:1']],
    ['a page of an encrypted site of that name', 403, ['host: HOST', 'origin: https://HOST']],
    ['a page without an origin', 403, ['host: HOST', 'origin: null']],
    ['an image on a page of another site', 403, ['host: HOST', 'sec-fetch-site: cross-site']],
    ['a page whose name leads here', 403, ['host: evil.example']],
    ['a page whose name leads here, and says so', 403, ['host: evil.example', 'origin: http://evil.example']],
    ['nobody', 400, []],
  ])('%s: %i', async (_, status, head) => {
    const { url } = await serve(folder());
    const host = new URL(url).host;
    const lines = head.map((line) => line.replaceAll('HOST', host));
    expect(await rawStatus(url, ['GET /api/runs HTTP/1.1', `authorization: Bearer ${token}`, ...lines])).toBe(status);
  });
});

describe('what is asked for', () => {
  it.each(['/api/runs', '/api/run?run=0/run'])('is kept by no cache and read as nothing but JSON: %s', async (path) => {
    const dir = folder();
    made(dir);
    const { ask } = await serve(dir);
    const { headers } = await ask(path);
    expect(headers.get('content-type')).toContain('application/json');
    expect(headers.get('x-content-type-options')).toBe('nosniff');
    expect(headers.get('cache-control')).toBe('no-store');
  });

  it.each([
    '/api/run?run=../run',
    '/api/run?run=0/..',
    '/api/run?run=0/../run',
    '/api/run?run=1/run',
    '/api/run?run=0%2F..%2F..%2Fetc',
    '/api/run',
    '/api/episodes?run=0/nothing',
    '/api/curves?run=0/run/..',
    '/api/experiment?id=0/../x',
    '/api/image/..%2F..%2Fsecret.png?run=0/run',
    '/api/image/run.json?run=0/run',
    '/api/image/%00?run=0/run',
    '/page/../../package.json',
    '/etc/passwd',
  ])('is not found: %s', async (path) => {
    const dir = folder();
    made(dir);
    const { ask, defects } = await serve(dir);
    expect((await ask(path)).status).toBe(404);
    expect(defects).toEqual([]);
  });

  it.each([
    ['/api/runs?offset=-1', "offset is '-1'; allowed: a whole number from 0 to 1000000000."],
    ['/api/runs?limit=501', "limit is '501'; allowed: a whole number from 0 to 500."],
    ['/api/runs?sort=nothing', "Unknown column or setting 'nothing'."],
    ['/api/runs?filter=%22', 'quotation mark'],
    ['/api/episodes?run=0/run&order=random', "order is 'random'; allowed: as_recorded"],
  ])('makes sense: %s', async (path, message) => {
    const dir = folder();
    made(dir);
    const { ask } = await serve(dir);
    const reply = await ask(path);
    expect(reply.status).toBe(400);
    expect(await errorOf(reply)).toContain(message);
  });

  it('reports what cannot be read of a run, and continues', async () => {
    const dir = folder();
    const paths = made(dir);
    made(dir, 'run_2');
    rmSync(paths.metrics);
    mkdirSync(paths.metrics);
    const { ask, defects } = await serve(dir);
    const reply = await ask('/api/curves?run=0/run&metric=a');
    expect([reply.status, defects.length]).toEqual([503, 0]);
    expect(await errorOf(reply)).toContain('this is a folder, not a plain file');
    const { runs } = (await (await ask('/api/runs?sort=name&descending=false')).json()) as WireRuns;
    expect(runs.map(({ state }) => state)).toEqual(['unreadable', 'interrupted']);
    expect(runs[0].reason).toContain('this is a folder');
  });
});

describe('the list and the page of a run', () => {
  it('report what the held-out number is, its error and change, and how long a running one will take', async () => {
    const dir = folder();
    const run = { iteration: 20, numIterations: 40, level: 6 } as const;
    writeRun(dir, { ...run, name: 'ended', state: 'finished' });
    const paths = writeRun(dir, { ...run, name: 'goes_on', state: 'running' });
    const held = { token: 't', slurm_job_id: null, host: hostname(), pid: process.pid };
    writeFileSync(paths.lock, JSON.stringify({ ...held, process_start: processStart(process.pid) }));
    const lines = readFileSync(paths.metrics, 'utf8').replaceAll(/"time\/total":[^,]+/g, '"time/total":3');
    writeFileSync(paths.metrics, lines);
    const { ask } = await serve(dir);
    const page = async (name: string) => (await (await ask(`/api/run?run=0/${name}`)).json()) as WireRunPage;
    expect((await page('ended')).run.held_out).toMatchObject({ label: 'viescore', before: 0, stderr: 0.1 });
    expect((await page('ended')).seconds_left).toBeNull();
    expect((await page('goes_on')).seconds_left).toBe(60);
  });
});

describe('hack alarms', () => {
  const alarm = { name: 'repeat_rate', from: 4 };

  it('are listed with the runs where they stand, and found by the filter', async () => {
    const dir = folder();
    const run = { state: 'finished', iteration: 9, numIterations: 9 } as const;
    writeRun(dir, { ...run, name: 'raised', alarm });
    writeRun(dir, { ...run, name: 'over', alarm: { ...alarm, to: 6 } });
    writeRun(dir, { ...run, name: 'sound' });
    const { ask } = await serve(dir);
    const found = async (filter: string) => {
      const query = new URLSearchParams({ filter, sort: 'name', descending: 'false' });
      const { runs } = (await (await ask(`/api/runs?${query.toString()}`)).json()) as WireRuns;
      return runs.map(({ name, alarms }) => [name, ...alarms].join(' '));
    };
    expect(await found('')).toEqual(['over', 'raised repeat_rate', 'sound']);
    expect(await found('alarm!=none')).toEqual(['raised repeat_rate']);
    expect(await found('alarm=repeat_rate')).toEqual(['raised repeat_rate']);
    expect(await found('alarm=none')).toEqual(['over', 'sound']);
  });

  it('are reported with iterations and limits, and marked on the curves of a run', async () => {
    const dir = folder();
    const paths = writeRun(dir, { name: 'run', state: 'finished', iteration: 9, numIterations: 9, alarm });
    const { ask } = await serve(dir);
    const page = async () => ((await (await ask('/api/run?run=0/run')).json()) as WireRunPage).alarms;
    const [first, ...others] = await page();
    expect(others).toEqual([]);
    expect(first).toMatchObject({ name: 'repeat_rate', metric: 'hack/repeat_rate', span: [4, 9], active: true });
    expect(first.value).toBeCloseTo(0.6, 0);
    expect(first.limits).toBe('max_rise 0.2');
    const curves = (await (await ask('/api/curves?run=0/run&metric=hack/repeat_rate')).json()) as WireCurves;
    expect(curves.alarms).toEqual([{ metric: 'hack/repeat_rate', span: [4, 9] }]);
    appendFileSync(paths.metrics, '{"iteration":10,"reward/mean":1}\n');
    await expect.poll(async () => (await page()).map(({ active }) => active)).toEqual([false]);
  });

  it('do not keep a page from being shown whose metrics cannot be read', async () => {
    const dir = folder();
    const paths = made(dir);
    rmSync(paths.metrics);
    mkdirSync(paths.metrics);
    const { ask } = await serve(dir);
    expect(((await (await ask('/api/run?run=0/run')).json()) as WireRunPage).alarms).toEqual([]);
  });
});

describe('a comparison', () => {
  const run = { state: 'finished', numIterations: 40 } as const;

  it('has the curves of all runs, smoothed, each in a group of its own', async () => {
    const dir = folder();
    writeRun(dir, { ...run, name: 'a', iteration: 40 });
    const short = writeRun(dir, { ...run, name: 'b', iteration: 5 });
    appendFileSync(short.metrics, '{"iteration":6,"reward/mean":"high","only/b":1}\n');
    const { ask } = await serve(dir);
    const query = 'run=0/a&run=0/b&metric=reward/mean&metric=only/b';
    const found = (await (await ask(`/api/curves?${query}`)).json()) as WireCurves;
    expect(found.groups).toEqual(['A: a', 'B: b']);
    expect(found.metrics).toContain('only/b');
    expect(found.curves.map(({ metric, group, iterations }) => [metric, group, iterations.length])).toEqual([
      ['reward/mean', 'A: a', 40],
      ['reward/mean', 'B: b', 5],
      ['only/b', 'A: a', 0],
      ['only/b', 'B: b', 1],
    ]);
    const alone = (await (await ask('/api/curves?run=0/a&metric=reward/mean')).json()) as WireCurves;
    // As many digits as a chart can show.
    expect(found.curves[0].mean).toEqual(smooth(alone.curves[0].mean).map((value) => Number(value.toPrecision(6))));
    const few = (await (await ask(`/api/curves?${query}&points=25`)).json()) as WireCurves;
    expect(few.curves[0].mean).toHaveLength(25);
    expect(few.curves[0].low).toBeUndefined();
  });

  it('reports what differs, and which run is gone, and continues with the others', async () => {
    const dir = folder();
    const overlays = ['configs/lib/tiny.libsonnet'];
    const { settings } = await loadTrained({ file: 'configs/sft_s__rl_s.jsonnet', overlays, env: {} });
    const values = { a: 0.1, b: 0.2 };
    for (const [name, kl_coeff] of Object.entries(values)) {
      const { record } = writeRun(dir, { ...run, name, iteration: 10 });
      const changed = { ...settings, run_name: name, algorithm: { ...settings.algorithm, kl_coeff } };
      const made = JSON.parse(readFileSync(record, 'utf8')) as object;
      writeFileSync(record, JSON.stringify({ ...made, settings: changed }));
    }
    const { ask, defects } = await serve(dir);
    const reply = await ask('/api/compare?run=0/a&run=0/gone&run=0/b');
    const found = (await reply.json()) as WireComparison;
    expect(found.runs.map(({ name }) => name)).toEqual(['a', 'b']);
    expect(found.notice?.texts[0]).toBe('Run 0/gone no longer exists and is left out.');
    const [differences] = found.above_curves;
    expect(JSON.stringify(differences)).toMatch(/algorithm\.kl_coeff.*0\.1.*0\.2/);
    expect((await ask('/api/compare?run=0/gone')).status).toBe(404);
    const many = Array.from({ length: 11 }, (_, at) => `run=0/${at}`).join('&');
    expect(await errorOf(await ask(`/api/compare?${many}`))).toContain('Cannot compare 11 runs. Allowed: at most 10');
    expect(defects).toEqual([]);
  });

  const unbuilt = existsSync('dist/page/report.js') ? '' : ' (left out: the page is not built, npm run build)';
  it.skipIf(unbuilt !== '')(
    `and a run are downloaded as the files that the command line writes${unbuilt}`,
    async () => {
      const dir = folder();
      const runs = ['first', 'second']
        .map((name) => made(dir, name))
        .map((paths) => {
          const lines = readMetrics(paths);
          return { paths, report: readRun(paths, lines), lines };
        });
      const { ask } = await serve(dir);
      const reply = await ask('/api/report?run=0/first');
      expect(reply.headers.get('content-type')).toBe('text/html; charset=utf-8');
      expect(reply.headers.get('content-disposition')).toBe('attachment');
      expect(reply.headers.get('cache-control')).toBe('no-store');
      expect(await reply.text()).toBe(await runFile(runs[0]));
      const both = await ask('/api/report?run=0/first&run=0/second');
      expect(await both.text()).toBe(await comparisonFile(compareRead(runs)));
    },
  );

  it('is not a file without one of its runs', async () => {
    const dir = folder();
    made(dir, 'first');
    const { ask } = await serve(dir);
    const reply = await ask('/api/report?run=0/first&run=0/gone');
    expect(reply.status).toBe(404);
    expect(await errorOf(reply)).toBe('Run no longer exists: 0/gone.');
  });
});

describe('images', () => {
  it('are PNG files of the run, which browsers may keep', async () => {
    const dir = folder();
    const paths = made(dir);
    await writeMadeEpisodes(paths, { iteration: 5, prompts: 1, answers: 1, withImages: true });
    const [line] = readFileSync(paths.episodes(5), 'utf8').split('\n');
    const { source } = JSON.parse(line) as { source: string };
    const { ask } = await serve(dir);
    const reply = await ask(`/api/image/${source}?run=0/run`);
    expect([reply.status, reply.headers.get('content-type')]).toEqual([200, 'image/png']);
    expect(reply.headers.get('cache-control')).toContain('immutable');
    expect(reply.headers.get('x-content-type-options')).toBe('nosniff');
    expect(Buffer.from(await reply.arrayBuffer())).toEqual(readFileSync(paths.media(source)));
  });

  it('are no other files with such a name', async () => {
    const dir = folder();
    const paths = made(dir);
    mkdirSync(paths.mediaDir);
    const [link, page, none] = ['a', 'b', 'c'].map((letter) => letter.repeat(64));
    symlinkSync(paths.record, paths.media(link));
    writeFileSync(paths.media(page), '<script>alert(1)</script>');
    mkdirSync(paths.media(none));
    const { ask } = await serve(dir);
    for (const name of [link, page, none]) expect((await ask(`/api/image/${name}?run=0/run`)).status).toBe(404);
  });
});

describe('streams', () => {
  it('tell of runs that change, and end with the dashboard', async () => {
    const dir = folder();
    made(dir);
    const { ask } = await serve(dir);
    const reply = await ask('/api/events');
    expect(reply.headers.get('content-type')).toContain('text/event-stream');
    made(dir, 'another');
    const found = await events<WireEvent>(reply, (all) => all.length > 0);
    expect(found[0]).toEqual({ kind: 'changed', ids: ['0/another'], more: false });
    const last = await ask('/api/events');
    await open.splice(0)[0].close();
    expect(await events(last, () => false)).toEqual([]);
  });

  it('follow a log to its end', async () => {
    const dir = folder();
    const paths = made(dir);
    writeFileSync(paths.consoleLog(1), 'one\ntwo é\nthree\n');
    const { ask } = await serve(dir);
    const all = await events<WireLog>(await ask('/api/log?run=0/run&lines=2'), () => false);
    expect(all).toEqual([
      { kind: 'text', text: 'two é\nthree\n' },
      { kind: 'end', reason: null },
    ]);
    const none = await events<WireLog>(await ask('/api/log?run=0/run&attempt=7'), () => false);
    expect(none).toMatchObject([{ kind: 'end', reason: expect.stringContaining('attempt 7') as string }]);
  });
});

describe('actions', () => {
  /** Stands for the command line: notes what it was called with, then ends as its code says. */
  function program(dir: string, code: string): string[] {
    const script = join(dir, 'program.mjs');
    const notes = JSON.stringify(join(dir, 'called'));
    writeFileSync(
      script,
      `import { appendFileSync } from 'node:fs';\nappendFileSync(${notes}, JSON.stringify(process.argv.slice(2)) + '\\n');\n${code}`,
    );
    return [process.execPath, script];
  }
  const called = (dir: string): string[][] =>
    readFileSync(join(dir, 'called'), 'utf8')
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line) as string[]);
  const act = (ask: Awaited<ReturnType<typeof serve>>['ask'], body: unknown): Promise<Response> =>
    ask('/api/act', { method: 'POST', body: JSON.stringify(body) });

  it('are those that the state allows, as the commands that a person would give', async () => {
    const dir = folder();
    made(dir);
    made(dir, 'done', 'finished');
    const { ask } = await serve(dir);
    const page = async (name: string): Promise<WireRunPage> =>
      (await (await ask(`/api/run?run=0/${name}`)).json()) as WireRunPage;
    expect((await page('run')).actions).toEqual([
      { action: 'resume', command: `editrl resume run --exp-dir ${dir}` },
      { action: 'start_again', command: `editrl resume run --exp-dir ${dir} --fresh` },
    ]);
    expect((await page('done')).actions.map(({ action }) => action)).toEqual(['start_again']);
  });

  it('call the command line, and tell how it ended', async () => {
    const [dir, elsewhere] = [folder(), folder()];
    made(dir);
    const { ask } = await serve(
      dir,
      program(elsewhere, 'console.error("no checkpoint \\u001b[31m here"); process.exit(1);'),
    );
    const stream = ask('/api/events');
    const notices = stream.then((reply) =>
      events<WireEvent>(reply, (all) => all.some(({ kind }) => kind === 'notice')),
    );
    await stream;
    expect((await act(ask, { run: '0/run', action: 'resume' })).status).toBe(200);
    const notice = (await notices).find(({ kind }) => kind === 'notice');
    expect(notice).toEqual({
      kind: 'notice',
      level: 'error',
      text: `editrl resume run --exp-dir ${dir}\nended with exit code 1:\nno checkpoint \\u001b[31m here`,
    });
    expect(called(elsewhere)).toEqual([['resume', 'run', '--exp-dir', dir]]);
  });

  it('stop a sweep, if there is one', async () => {
    const [dir, elsewhere] = [folder(), folder()];
    for (const seed of [1, 2]) {
      writeRun(dir, { name: `e__seed-${seed}`, state: 'finished', iteration: 1, numIterations: 1 });
    }
    recordGrid(dir, 'e', { seed: ['1', '2'] });
    const { ask } = await serve(dir, program(elsewhere, ''));
    const actions = async (): Promise<WireMatrix['actions']> =>
      ((await (await ask('/api/experiment?id=0/e')).json()) as WireMatrix).actions;
    expect(await actions()).toEqual([]);
    expect(await errorOf(await act(ask, { experiment: '0/e', action: 'stop' }))).toBe('No sweep of e is running.');
    const owned = ownExperiment(dir, 'e');
    try {
      expect(await actions()).toEqual([
        { action: 'stop', command: `editrl stop e --exp-dir ${dir}` },
        { action: 'stop_now', command: `editrl stop e --exp-dir ${dir} --now` },
      ]);
      expect(await errorOf(await act(ask, { experiment: '0/e', action: 'resume' }))).toContain('Unknown action');
      expect((await act(ask, { experiment: '0/f', action: 'stop' })).status).toBe(404);
      expect((await act(ask, { experiment: '0/e', action: 'stop' })).status).toBe(200);
      const notes = join(elsewhere, 'called');
      await until(() => existsSync(notes) && readFileSync(notes, 'utf8').endsWith('\n'));
      expect(called(elsewhere)).toEqual([['stop', 'e', '--exp-dir', dir]]);
    } finally {
      owned.release();
    }
  });

  it('are rejected for what is no action, no run, and what the state does not allow', async () => {
    const [dir, elsewhere, temporary] = [folder(), folder(), folder()];
    made(dir);
    vi.stubEnv('TMPDIR', temporary);
    const { ask, defects, url } = await serve(dir, program(elsewhere, ''));
    expect(await errorOf(await act(ask, { run: '0/run', action: 'stop' }))).toBe(
      'Cannot stop run: it is interrupted. Allowed states: queued, running, waiting.',
    );
    expect(await errorOf(await act(ask, { run: '0/run', action: 'constructor' }))).toContain('Unknown action');
    expect((await act(ask, { run: '0/../run', action: 'resume' })).status).toBe(404);
    expect((await act(ask, null)).status).toBe(404);
    expect((await ask('/api/act', { method: 'POST', body: '{' })).status).toBe(400);
    expect((await ask('/api/act')).status).toBe(405);
    const stranger = await fetch(`${url}/api/act`, { method: 'POST', body: '{"run":"0/run","action":"resume"}' });
    expect(stranger.status).toBe(401);
    // A command's output has a folder from before it begins until it has ended, and what was called is noted before that.
    expect(readdirSync(temporary)).toEqual([]);
    expect(existsSync(join(elsewhere, 'called'))).toBe(false);
    expect(defects).toEqual([]);
  });
});
