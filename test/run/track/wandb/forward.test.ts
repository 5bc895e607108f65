import { existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { encodePlainPng } from '../../../../src/core/images/png.js';
import { storePng } from '../../../../src/run/episodes.js';
import { readWandbCursor, type WandbCursor } from '../../../../src/run/track/wandb/server_run.js';
import { recordWandbId } from '../../../../src/run/track/wandb/environment.js';
import type { RunTracking, TrackingOptions } from '../../../../src/run/track/tracking.js';
import { testFolders } from '../../../support/folder.js';
import { trackerContract } from '../contract.js';
import { FakeRun } from '../run_directory.js';
import { following, until } from './following.js';
import { GONE } from '../../../../src/run/track/shown_episodes.js';
import { KEY, StubWandb } from './stub.js';

const folder = testFolders('wandb');
let stub: StubWandb;
let said: string[];

beforeEach(async () => {
  said = [];
  stub = await new StubWandb().listen();
});
afterEach(async () => {
  await stub.close();
  expect(stub.wrong).toEqual([]);
  expect(said.join('\n')).not.toContain(KEY);
});

function follow(run: FakeRun, others: Partial<TrackingOptions> = {}): RunTracking {
  return following(run, stub, said, others);
}

/** Follows a run that has ended, from what is on its disk to the last line. */
async function forward(run: FakeRun, others: Partial<TrackingOptions> = {}): Promise<void> {
  await follow(run, others).end();
}

/** Names of uploaded pictures and tables, sorted. */
function media(name: string): string[] {
  return [...stub.run(name).uploads.keys()].filter((file) => file.startsWith('media/')).sort();
}

function iterations(name = 'run'): unknown[] {
  return stub.runs.size === 0 ? [] : stub.history(name).map(({ iteration }) => iteration);
}

trackerContract('W&B', {
  folder,
  forward: async (run, ending = AbortSignal.abort()) => {
    // What a run did again is another line in the same place.
    stub.mayChange = true;
    const before = said.length;
    const tracking = follow(run);
    if (!ending.aborted) {
      const gone = async (): Promise<void> => {
        while (!said.some((line) => line.includes('is gone'))) await delay(5);
      };
      await Promise.race([gone(), new Promise((resolve) => ending.addEventListener('abort', resolve))]);
    }
    await tracking.end();
    return said.slice(before).join('\n');
  },
  rows: () => stub.history('run').map((row) => [Number(row['iteration']), Number(row['reward/mean'])]),
  lose: () => stub.runs.clear(),
  notes: (run) => run.paths.wandb,
});

describe('W&B', () => {
  it('gets every row, with its step, time and values, and how the run ended', async () => {
    const run = new FakeRun(folder());
    run.iteration(0, { 'validation/sampled/mean': 3, 'time/total': 0 });
    const tracking = follow(run);
    run.iteration(1, { 'policy/loss': NaN });
    run.iteration(2);
    run.says('hello');
    run.says('a detail', 'debug');
    run.says('two\nlines', 'error');
    run.state('finished', 2);
    await tracking.end();
    expect(stub.history('run')).toEqual([
      {
        'validation/sampled/mean': 3,
        'reward/mean': 0,
        'time/total': 0,
        iteration: 0,
        _step: 0,
        _timestamp: 1767225600,
        _runtime: 0,
      },
      {
        'reward/mean': 0.1,
        'time/total': 0.5,
        'policy/loss': 'NaN',
        'metrics/non_finite': 1,
        iteration: 1,
        _step: 1,
        _timestamp: 1767225600.5,
        _runtime: 0.5,
      },
      { 'reward/mean': 0.2, 'time/total': 0.5, iteration: 2, _step: 2, _timestamp: 1767225601, _runtime: 1 },
    ]);
    const { files, summary, complete, exitcode, config, params } = stub.run('run');
    expect(files['output.log']).toEqual([
      '2026-01-01T00:00:01.250000 hello',
      'ERROR 2026-01-01T00:00:01.250000 two',
      'ERROR 2026-01-01T00:00:01.250000 lines',
    ]);
    expect(summary).toContain('"policy/loss":NaN');
    expect(summary).toContain('"validation/sampled/mean":3');
    expect(complete).toBe(true);
    expect(exitcode).toBe(0);
    expect(config['seed']).toEqual({ value: 3 });
    expect(params).toMatchObject({ displayName: 'run', jobType: 'text_answers', project: 'edits' });
    expect(said).toEqual([`W&B: ${stub.url}/team/edits/runs/run`]);
  });

  it('has the run under the id that was noted for it, also when it continues', async () => {
    const run = new FakeRun(folder());
    recordWandbId(run.paths, 'mine');
    run.iterations(0, 2);
    await forward(run);
    run.goOnFrom(2);
    run.iterations(3, 4);
    run.state('finished', 4);
    await forward(run);
    expect(iterations('mine')).toEqual([0, 1, 2, 3, 4]);
    expect([...stub.runs.keys()]).toEqual(['team/edits/mine']);
    expect(stub.run('mine').params).toMatchObject({ displayName: 'run' });
    expect(said).toContain(`W&B: ${stub.url}/team/edits/runs/mine`);
  });

  it('loses no row and doubles none where every third request fails and the server is unreachable for a while', async () => {
    const run = new FakeRun(folder());
    let random = 7;
    const chance = (): number => (random = (random * 16807) % 2147483647) / 2147483647;
    stub.fault = () => {
      const drawn = chance();
      if (drawn > 0.3) return null;
      return drawn < 0.1 ? { kind: 'status', status: 500 } : { kind: drawn < 0.2 ? 'cut' : 'lost' };
    };
    const tracking = follow(run);
    for (let i = 1; i <= 500; i++) {
      run.iteration(i);
      run.says(`iteration ${i}`);
      if (i % 5 === 0) await delay(1);
      if (i === 200) await stub.close();
      if (i === 400) await stub.listen(Number(new URL(stub.url).port));
    }
    run.state('finished', 500);
    await tracking.end();
    expect(stub.history('run').map(({ iteration }) => iteration)).toEqual(Array.from({ length: 500 }, (_, i) => i + 1));
    expect(stub.run('run').files['output.log']).toHaveLength(500);
    expect(stub.run('run').complete).toBe(true);
    expect(said.filter((line) => line.includes('does not respond')).length).toBeGreaterThan(0);
  });

  it('continues where it was, from what is noted', async () => {
    const run = new FakeRun(folder());
    run.iterations(1, 3);
    run.says('first');
    await forward(run);
    run.iterations(4, 5);
    run.goOnFrom(5);
    run.iterations(6, 7);
    run.says('second');
    await forward(run);
    expect(iterations()).toEqual([1, 2, 3, 4, 5, 6, 7]);
    expect(stub.run('run').files['output.log'].map((line) => line.slice(27))).toEqual(['first', 'second']);
    // The hour between the attempts shows in the times, and not in what the training took.
    expect(stub.history('run').at(5)).toMatchObject({ _timestamp: 1767225600 + 3600.5, _runtime: 3 });
    const sent = stub.requests.flatMap(({ body }) => {
      const { 'wandb-history.jsonl': history } = (body['files'] ?? {}) as Record<string, { content: unknown[] }>;
      return history?.content.length ?? 0;
    });
    expect(sent.reduce((sum, count) => sum + count, 0)).toBe(7);
  });

  it('sends a row that is larger than a request of rows by itself', async () => {
    const run = new FakeRun(folder());
    run.iteration(0);
    run.iteration(1, Object.fromEntries(Array.from({ length: 100 }, (_, i) => [`a/${i}/${'x'.repeat(54_000)}`, 1])));
    run.iteration(2);
    await forward(run);
    expect(iterations()).toEqual([0, 1, 2]);
    expect(stub.run('run').files['wandb-history.jsonl'][1].length).toBeGreaterThan(5 * 1024 * 1024);
  });

  it('never notes images of iterations whose rows a run that went back has still to send', async () => {
    stub.mayChange = true;
    const run = new FakeRun(folder());
    run.iterations(1, 5);
    const tracking = follow(run);
    await until(() => readWandbCursor(run.paths)?.media === 5);
    const ahead: WandbCursor[] = [];
    stub.fault = () => {
      const cursor = readWandbCursor(run.paths);
      if (cursor !== null && cursor.media > cursor.iteration) ahead.push(cursor);
      return null;
    };
    run.goOnFrom(1);
    run.iteration(2);
    await until(() => readWandbCursor(run.paths)?.iteration === 2);
    run.iteration(3);
    await tracking.end();
    await forward(run);
    expect(ahead).toEqual([]);
  });

  it('keeps the config and summary that were set on the page of the run', async () => {
    const run = new FakeRun(folder());
    run.iteration(0);
    await forward(run);
    stub.run('run').config['only'] = { value: 'there' };
    stub.write('run', {}, { 'validation/best': 9 });
    run.iteration(1);
    await forward(run);
    expect(stub.run('run').config).toMatchObject({ only: { value: 'there' }, seed: { value: 3 } });
    expect(stub.run('run').summary).toContain('"validation/best":9');
  });

  it('reports once that the key is wrong; rows wait and follow later', async () => {
    const run = new FakeRun(folder());
    const wrong = { ...stub.env, WANDB_API_KEY: 'b'.repeat(40) };
    const tracking = follow(run, { env: wrong });
    run.iterations(1, 3);
    await tracking.end();
    expect(said).toEqual([
      `${stub.url}: W&B rejected the API key of 40 characters (401)\n  Set WANDB_API_KEY, or the password in ~/.netrc, to a key of this server that may write to the project.\n  The run continues, and its metrics stay in its folder.`,
    ]);
    await forward(run);
    expect(iterations()).toEqual([1, 2, 3]);
  });

  it('takes the key of ~/.netrc', async () => {
    const home = folder();
    writeFileSync(
      join(home, '.netrc'),
      `machine other login a password no\nmachine ${new URL(stub.url).host}\n  login user\n  password ${KEY}\n`,
    );
    const run = new FakeRun(folder());
    run.iterations(1, 1);
    await forward(run, { env: { WANDB_BASE_URL: stub.url, HOME: home } });
    expect(iterations()).toEqual([1]);
  });

  it('does not wait long for a server that is missing when the run ends, and sends the rest later', async () => {
    const run = new FakeRun(folder());
    const tracking = follow(run, { finishMs: 500 });
    run.iterations(1, 3);
    await until(() => iterations().length === 3);
    await stub.close();
    run.iterations(4, 9);
    await tracking.end();
    expect(said.at(-1)).toBe(
      `${stub.url}: W&B does not respond; it has 3 of 9 rows\n  \`editrl sync run\` uploads the rest.\n  The run continues, and its metrics stay in its folder.`,
    );
    await stub.listen(Number(new URL(stub.url).port));
    await forward(run);
    expect(iterations()).toEqual([1, 2, 3, 4, 5, 6, 7, 8, 9]);
  });

  it('says it where the server rejects lines, and stops sending', async () => {
    const run = new FakeRun(folder());
    stub.fault = ({ what }) =>
      what === 'file_stream' ? { kind: 'status', status: 404, body: { error: 'not now' } } : null;
    run.iterations(1, 2);
    await forward(run);
    expect(said.at(-1)).toContain('W&B rejected file_stream (404: not now)');
    expect(stub.requests.filter(({ what }) => what === 'file_stream')).toHaveLength(1);
  });

  it('sends episodes as a table and as images, each image once; one that is missing is reported to be', async () => {
    const run = new FakeRun(folder());
    const picture = (shade: number): string =>
      storePng(run.paths, encodePlainPng({ width: 2, height: 3, data: new Uint8Array(18).fill(shade) }));
    const [source, edited, gone] = [picture(1), picture(2), picture(3)];
    rmSync(run.paths.media(gone));
    const scored = { kind: 'scored', value: 7.5, normalised: 0.75, parts: { 'viescore/overedit': 8 } };
    run.episodes(5, [
      {
        iteration: 5,
        sample: 'a',
        instruction: 'remove the \u001b[31mdog',
        source,
        edited,
        truth: source,
        outcome: scored,
        advantage: 1,
      },
      {
        iteration: 5,
        sample: 'b',
        instruction: 'move it',
        source,
        edited: gone,
        outcome: { kind: 'zero_by_rule', reason: 'no image', parts: {} },
      },
    ]);
    run.episodes(6, [{ iteration: 6, sample: 'c', instruction: 'no pictures', tokens: [1], outcome: scored }]);
    run.iterations(5, 6);
    await forward(run);
    const [row, next] = stub.history('run');
    const name = (digest: string): string => `media/images/${digest.slice(0, 20)}.png`;
    expect(row['episodes/edited']).toEqual({
      _type: 'images/separated',
      ...{ width: 2, height: 3, format: 'png', count: 1 },
      filenames: [name(edited)],
      captions: ['7.50  remove the \\u001b[31mdog'],
    });
    expect(row['episodes/source']).toMatchObject({ count: 2, filenames: [name(source), name(source)] });
    expect(Object.keys(next)).not.toContain('episodes/table');
    const { uploads, uploaded } = stub.run('run');
    const { path } = row['episodes/table'] as { path: string };
    const asked = ['iteration', 'sample', 'sampling', 'instruction', 'answer'];
    const columns = [...asked, 'outcome', 'reward', 'advantage', 'viescore/overedit', 'source', 'edited', 'truth'];
    expect(media('run')).toEqual([name(source), name(edited), path].sort());
    expect(uploaded).toEqual(new Set(uploads.keys()));
    expect(uploads.get(name(edited))).toEqual(readFileSync(run.paths.media(edited)));
    const cells = [name(source), name(edited), name(source)];
    expect(JSON.parse(String(uploads.get(path)))).toEqual({
      columns,
      data: [
        [5, 'a', 'sampled', 'remove the \\u001b[31mdog', null, 'scored', 7.5, 1, 8, ...cells],
        [5, 'b', 'sampled', 'move it', null, 'zero_by_rule: no image', 0, null, null, name(source), GONE, null],
      ],
    });
  });

  it('uploads what it had no time for, the next time', async () => {
    const run = new FakeRun(folder());
    run.episodes(1, [{ iteration: 1, sample: 'a', instruction: 'x', edited: null, outcome: {} }]);
    run.iterations(1, 1);
    stub.fault = ({ what }) => (what === 'upload' ? { kind: 'status', status: 503 } : null);
    const tracking = follow(run, { finishMs: 500 });
    await until(() => iterations().length === 1);
    await tracking.end();
    expect(said.at(-1)).toContain('W&B does not respond; it has 1 of 1 rows');
    expect(media('run')).toEqual([]);
    stub.fault = () => null;
    await forward(run);
    expect(media('run')).toHaveLength(1);
  });

  it('shows the files that W&B shows of any run, with no secret in them', async () => {
    const settings = { launch: { env: { HF_TOKEN: 'hf_secret_word' } }, reward: { api_key_env: 'JUDGE' } };
    const run = new FakeRun(folder(), 'run', { ...settings, note: 'judge_secret_word', rate: 1e-7 });
    run.iteration(1, { 'policy/loss': NaN });
    run.says(`hello ${KEY} hf_secret_word judge_secret_word`);
    run.state('finished', 1);
    await forward(run, { env: { ...stub.env, JUDGE: 'judge_secret_word' } });
    const { uploads, uploaded, files, config } = stub.run('run');
    expect([...uploaded].sort()).toEqual(['wandb-metadata.json']);
    const text = (name: string): string => String(uploads.get(name));
    expect(files['output.log'][0]).toContain('hello [key] [key] [key]');
    expect(config['note']).toEqual({ value: '[key]' });
    expect(JSON.parse(text('wandb-metadata.json'))).toMatchObject({ program: 'editrl', host: 'machine' });
    const everything = [...uploads.values(), JSON.stringify(config), JSON.stringify(files)].join('\n');
    for (const secret of [KEY, 'hf_secret_word', 'judge_secret_word']) expect(everything).not.toContain(secret);
    // The stream says what was uploaded before it says that the run is over.
    expect(stub.run('run').complete).toBe(true);
  });

  it('continues without images if the server does not take files', async () => {
    const run = new FakeRun(folder());
    run.episodes(1, [{ iteration: 1, sample: 'a', instruction: 'x', edited: null, outcome: {} }]);
    run.iterations(1, 2);
    run.state('finished', 2);
    stub.fault = ({ operation }) => (operation === 'CreateRunFiles' ? { kind: 'status', status: 422 } : null);
    await forward(run);
    expect(said.at(-1)).toContain('Files, images and tables stay in the run directory');
    expect(stub.run('run').complete).toBe(true);
  });

  it('sends the load of the machine', async () => {
    const run = new FakeRun(folder());
    const tracking = follow(run);
    run.iterations(1, 1);
    await until(() => stub.runs.size > 0 && stub.run('run').files['wandb-events.jsonl'].length > 1);
    await tracking.end();
    const [line] = stub.run('run').files['wandb-events.jsonl'].map((one) => JSON.parse(one) as Record<string, unknown>);
    expect(line).toMatchObject({ _wandb: true, 'system.cpu': expect.any(Number) as number });
    expect(Number(line['system.memory_percent'])).toBeGreaterThan(0);
    expect(Number(line['system.proc.memory.rssMB'])).toBeGreaterThan(10);
  });

  it('reports a Stop on the page once, and not one that an earlier attempt has followed', async () => {
    const run = new FakeRun(folder());
    stub.stopped = true;
    const tracking = follow(run);
    run.iterations(1, 1);
    await until(() => iterations().length === 1);
    await delay(60);
    expect(said).not.toContain('stop');
    stub.stopped = false;
    const before = stub.requests.length;
    await until(() => stub.requests.length > before + 1);
    stub.stopped = true;
    await until(() => said.includes('stop'));
    await delay(60);
    await tracking.end();
    expect(said.filter((line) => line === 'stop')).toHaveLength(1);
  });

  it.each(['disabled', 'offline'])('sends nothing with WANDB_MODE=%s', async (mode) => {
    const run = new FakeRun(folder());
    run.iterations(1, 2);
    const tracking = follow(run, { env: { ...stub.env, WANDB_MODE: mode } });
    await delay(100);
    await tracking.end();
    expect(stub.requests).toEqual([]);
    expect(said).toEqual(
      mode === 'disabled'
        ? []
        : [expect.stringContaining(`${run.paths.dir}. \`editrl sync ${run.paths.runName}\` uploads it later`)],
    );
    expect(existsSync(run.paths.systemMetrics)).toBe(mode === 'offline');
  });

  it.each([
    [{ WANDB_MODE: 'on' }, "WANDB_MODE: found 'on'; allowed: online, offline, disabled"],
    [{ WANDB_BASE_URL: 'localhost' }, 'WANDB_BASE_URL: the address is not an http address'],
    [{ WANDB_BASE_URL: 'https://wandb.ai' }, 'WANDB_BASE_URL: the address is not the API of wandb.ai'],
    [{ WANDB_BASE_URL: 'http://u:p@host' }, 'contains a user name or password'],
    [{ WANDB_API_KEY: 'short-key' }, 'WANDB_API_KEY: the W&B key has 3 characters; allowed: at least 40'],
  ])('reports what is wrong with %j', async (env, message) => {
    await forward(new FakeRun(folder()), { env: { ...stub.env, ...env } });
    expect(said).toHaveLength(1);
    expect(said[0]).toContain(message);
  });
});
