import { mkdirSync, writeFileSync } from 'node:fs';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { writeRecord } from '../../../src/run/record.js';
import { lockTracking, syncRun, type SyncOptions, type SyncResult } from '../../../src/run/track/tracking.js';
import { loadEvaluated } from '../../config/evaluated.js';
import { testFolders } from '../../support/folder.js';
import { FakeRun } from './run_directory.js';
import { StubWandb } from './wandb/stub.js';

const folder = testFolders('sync');
let stub: StubWandb;
let said: string[];

beforeEach(async () => {
  said = [];
  stub = await new StubWandb().listen();
});
afterEach(async () => {
  await stub.close();
  expect(stub.wrong).toEqual([]);
});

/** A run with the settings of a real config. */
async function finished(...sets: string[]): Promise<FakeRun> {
  const file = 'configs/sft_s__rl_s.jsonnet';
  const { settings } = await loadEvaluated({ file, overlays: ['configs/lib/tiny.libsonnet'], sets, env: {} });
  const run = new FakeRun(folder());
  writeRecord(run.paths, { ...run.record, settings: { ...settings }, experiment: 'ablation' });
  run.iterations(1, 4);
  run.state('finished', 4);
  return run;
}

function sync(run: FakeRun, given: Partial<SyncOptions> = {}): Promise<SyncResult> {
  return syncRun(run.paths, {
    wandb: null,
    say: (line) => void said.push(line),
    env: stub.env,
    retryPolicy: { backoffBaseMs: 1, backoffCapMs: 10, attemptTimeoutMs: 1000 },
    finishMs: 60_000,
    ...given,
  });
}

it('sends a run whole, and only once', async () => {
  const run = await finished('track.wandb={"project":"edits","tags":["a"]}', 'track.tensorboard=true');
  const page = `${stub.url}/team/edits/runs/run`;
  expect(await sync(run)).toEqual({ wandb: { rows: 4, page }, tensorboard: 4, hub: null });
  expect(stub.history('run').map(({ iteration }) => iteration)).toEqual([1, 2, 3, 4]);
  const { params, complete, exitcode } = stub.run('run');
  expect(params).toMatchObject({ groupName: 'ablation', jobType: 'image_edit_tokens', tags: ['a'] });
  expect([complete, exitcode]).toEqual([true, 0]);
  expect(await sync(run)).toEqual({ wandb: { rows: 4, page }, tensorboard: 4, hub: null });
  expect(stub.history('run')).toHaveLength(4);
});

it('sends a run whose config names no project to one that is named', async () => {
  const run = await finished();
  await expect(sync(run)).rejects.toMatchObject({
    message: 'run has no tracking: its config sets none of track.wandb, track.tensorboard and track.push_to_hub',
    next: 'Add --project NAME to upload it to W&B.',
  });
  await expect(sync(run, { wandb: { project: 'a/b', entity: null } })).rejects.toThrow(
    "'a/b' is not a valid W&B project name",
  );
  await sync(run, { wandb: { project: 'mine', entity: 'others' } });
  expect(stub.run('run', 'mine', 'others').files['wandb-history.jsonl']).toHaveLength(4);
  // In another project it begins anew.
  await sync(run, { wandb: { project: 'edits', entity: null } });
  expect(stub.history('run')).toHaveLength(4);
});

it('raises if the server does not answer or refuses, so that a command can say so', async () => {
  const run = await finished('track.wandb={"project":"edits"}');
  await expect(sync(run, { env: { ...stub.env, WANDB_API_KEY: 'c'.repeat(40) } })).rejects.toMatchObject({
    exitCode: 3,
  });
  stub.fault = () => ({ kind: 'cut' });
  await expect(sync(run, { finishMs: 1000 })).rejects.toMatchObject({
    message: 'W&B does not respond; it has 0 of 4 rows',
  });
  expect(said).toEqual([
    `W&B at ${stub.url} does not respond (ECONNRESET). Rows stay in the run directory and are uploaded later.`,
  ]);
});

it('does not send what another process sends', async () => {
  const run = await finished('track.wandb={"project":"edits"}');
  const lock = lockTracking(run.paths);
  await expect(sync(run)).rejects.toThrow(`process ${process.pid} on`);
  lock.release();
  await sync(run);
});

it('rejects a run directory of another version', async () => {
  const run = await finished('track.wandb={"project":"edits"}');
  mkdirSync(run.paths.trackDir, { recursive: true });
  writeFileSync(run.paths.record, '{"format":7,"settings":{},"attempts":[]}');
  await expect(sync(run)).rejects.toThrow('this version of editrl cannot read the run record');
});
