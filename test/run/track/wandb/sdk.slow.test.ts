/**
 * W&B's own SDK writes to a run of this program, which then has another id. Left out unless EDITRL_WANDB names a Python
 * environment that has it (`python3 -m venv v && v/bin/pip install wandb`, then EDITRL_WANDB=$PWD/v).
 */
import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { recordWandbId } from '../../../../src/run/track/wandb/environment.js';
import { testFolders } from '../../../support/folder.js';
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

async function logWithSdk(name: string, resume: 'never' | 'must', ...values: number[]): Promise<void> {
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

describe.skipIf(environment === undefined)(`W&B's own SDK${REASON}`, () => {
  it('continues with a run of ours, which then has another id', { timeout: 3 * LONGEST_MS }, async () => {
    const run = new FakeRun(folder());
    run.iterations(0, 2);
    await forward(run);
    await logWithSdk('run', 'must', 0.25);
    run.iteration(3);
    await forward(run);
    expect(rows('run')).toEqual([
      [0, 0],
      [1, 1],
      [2, 2],
      [3, 0.25],
    ]);
    expect(rows('run-2')).toEqual([0, 1, 2, 3].map((i) => [i, i]));
  });

  it('begins a run, whose id ours does not take', { timeout: 3 * LONGEST_MS }, async () => {
    await logWithSdk('theirs', 'never', 0.25, 0.5);
    const run = new FakeRun(folder());
    recordWandbId(run.paths, 'theirs');
    run.iterations(0, 1);
    await forward(run);
    expect(rows('theirs')).toEqual([
      [0, 0.25],
      [1, 0.5],
    ]);
    expect(rows('theirs-2')).toEqual([0, 1].map((i) => [i, i]));
  });
});
