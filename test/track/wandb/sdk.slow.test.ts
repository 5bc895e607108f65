/**
 * W&B's own SDK and this program write to one run, in turns: either goes on where the other stopped. Left out unless EDITRL_WANDB names a Python
 * environment that has it (`python3 -m venv v && v/bin/pip install wandb`, then EDITRL_WANDB=$PWD/v).
 */
import { execFile } from 'node:child_process';
import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { noteWandbId } from '../../../src/track/wandb/run_id.js';
import { testFolders } from '../../support/folder.js';
import { FakeRun } from '../run_directory.js';
import { following } from './following.js';
import { StubWandb } from './stub.js';

const environment = process.env['EDITRL_WANDB'];
const REASON = environment === undefined ? ' (left out: EDITRL_WANDB names no environment)' : '';
const LONGEST_MS = 120_000;

const folder = testFolders('wandb_sdk');
let stub: StubWandb;
let said: string[];

beforeEach(async () => {
  said = [];
  stub = await new StubWandb().listen();
});
afterEach(async () => {
  await stub.close();
  // A line that another took the place of, and a gap, stand in it.
  expect(stub.wrong).toEqual([]);
});

async function forward(run: FakeRun): Promise<void> {
  await following(run, stub, said).end();
}

async function logWithSdk(name: string, resume: 'never' | 'must' | 'allow', ...values: number[]): Promise<void> {
  const program = join(import.meta.dirname, 'log_with_sdk.py');
  await promisify(execFile)(join(String(environment), 'bin/python'), [program, name, resume, ...values.map(String)], {
    cwd: folder(),
    env: { ...process.env, ...stub.env, WANDB_ERROR_REPORTING: 'false', WANDB_MODE: 'online' },
    timeout: LONGEST_MS,
  });
}

/** Each row as what it says and its step. */
function rows(name: string): unknown[] {
  return stub.history(name).map(({ _step, iteration, 'notebook/value': value }) => [_step, iteration ?? value]);
}

function output(name: string): string[] {
  const lines = stub.run(name).files['output.log'];
  return lines.map((line) => line.replace(/^\S*T\S* /, '')).filter((line) => /^(noted|said)/.test(line));
}

describe.skipIf(environment === undefined)(`W&B's own SDK${REASON}`, () => {
  it('goes on with a run of ours, and we go on with it', { timeout: 3 * LONGEST_MS }, async () => {
    const run = new FakeRun(folder());
    run.iterations(0, 2);
    run.says('said first');
    await forward(run);
    await logWithSdk('run', 'must', 0.25, 0.5);
    expect(rows('run')).toEqual([
      [0, 0],
      [1, 1],
      [2, 2],
      [3, 0.25],
      [4, 0.5],
    ]);
    run.iterations(3, 4);
    run.says('said second');
    await forward(run);
    await logWithSdk('run', 'allow', 0.75);
    run.iteration(5);
    run.state('finished', 5);
    await forward(run);
    const all = [
      [0, 0],
      [1, 1],
      [2, 2],
      [3, 0.25],
      [4, 0.5],
      [5, 3],
      [6, 4],
      [7, 0.75],
      [8, 5],
    ];
    expect(rows('run')).toEqual(all);
    expect(output('run')).toEqual(['said first', 'noted 0.25', 'noted 0.5', 'said second', 'noted 0.75']);
    expect(said.filter((line) => line.includes('not noted as sent'))).toHaveLength(2);
    const { config, summary, complete, exitcode, uploads } = stub.run('run');
    expect(config).toMatchObject({
      by_sdk: { value: true },
      seed: { value: 3 },
      editrl: { value: { behind: [{}, {}] } },
    });
    expect(JSON.parse(summary)).toMatchObject({
      'notebook/value': 0.75,
      'notebook/note': 'kept',
      iteration: 5,
      _step: 8,
    });
    expect([complete, exitcode]).toEqual([true, 0]);
    expect([...uploads.keys()]).toContain('logs/output_20260101_000000.log');
    // What is noted here may be lost: the server knows the places.
    rmSync(run.paths.wandb);
    await forward(run);
    expect(rows('run')).toEqual(all);
  });

  it('begins a run that we go on with, and goes on with it again', { timeout: 3 * LONGEST_MS }, async () => {
    await logWithSdk('theirs', 'never', 0.25, 0.5);
    const run = new FakeRun(folder());
    noteWandbId(run.paths, 'theirs');
    run.iterations(0, 1);
    await forward(run);
    await logWithSdk('theirs', 'must', 0.75);
    run.iteration(2);
    await forward(run);
    expect(rows('theirs')).toEqual([
      [0, 0.25],
      [1, 0.5],
      [2, 0],
      [3, 1],
      [4, 0.75],
      [5, 2],
    ]);
    expect(JSON.parse(stub.run('theirs').summary)).toMatchObject({ 'notebook/value': 0.75, iteration: 2 });
  });
});
