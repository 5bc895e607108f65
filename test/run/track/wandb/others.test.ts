/** A W&B run that others write to as well: their lines stay, and the run gets an id of its own. */
import { rmSync } from 'node:fs';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { readWandbCursor } from '../../../../src/run/track/wandb/server_run.js';
import { recordWandbId } from '../../../../src/run/track/wandb/environment.js';
import { testFolders } from '../../../support/folder.js';
import { FakeRun } from '../run_directory.js';
import { following, until } from './following.js';
import { StubWandb } from './stub.js';

const folder = testFolders('others');
let stub: StubWandb;
let said: string[];

beforeEach(async () => {
  said = [];
  stub = await new StubWandb().listen();
});
afterEach(async () => {
  await stub.close();
  // Among it: a line that another took the place of.
  expect(stub.wrong).toEqual([]);
});

async function forward(run: FakeRun, record = run.record): Promise<void> {
  await following(run, stub, said, { record }).end();
}

/** What a notebook does: it goes on behind what is there. */
function note(step: number, accuracy: number): void {
  const row = { 'notebook/accuracy': accuracy, _step: step, _timestamp: 1.5, _runtime: 1.5 };
  const line = JSON.stringify(row);
  stub.write(
    'run',
    { 'wandb-history.jsonl': [line], 'wandb-events.jsonl': ['{"system.cpu":1}'], 'output.log': [`noted ${step}`] },
    { 'notebook/accuracy': accuracy, _step: step },
  );
}

/** Each row as its step and iteration; a notebook's has none. */
function rows(id: string): unknown[] {
  return stub.history(id).map(({ _step, iteration }) => [_step, iteration ?? 'notebook']);
}

const upTo = (last: number): unknown[] => Array.from({ length: last + 1 }, (_, i) => [i, i]);

/** The lines that named another writer, among those since the last call. */
function warned(): string[] {
  return said.splice(0).filter((line) => line.includes('another writer'));
}

it('has all of its rows under another id once others wrote, reports it once, and keeps that id', async () => {
  const run = new FakeRun(folder());
  run.iterations(0, 2);
  run.says('first');
  await forward(run);
  expect(warned()).toEqual([]);
  note(3, 0.5);
  const kept = (): string => JSON.stringify([stub.run('run').files, stub.run('run').config, stub.run('run').summary]);
  const before = kept();
  run.iterations(3, 4);
  run.says('second');
  await forward(run);
  expect(warned()).toEqual(['the W&B run run contains lines of another writer, so this run uses the id run-2']);
  expect(kept()).toBe(before);
  expect(rows('run-2')).toEqual(upTo(4));
  const { files, summary, params } = stub.run('run-2');
  expect(files['output.log'].map((line) => line.replace(/^2026\S+ /, ''))).toEqual(['first', 'second']);
  expect(JSON.parse(summary)).toMatchObject({ iteration: 4, _step: 4 });
  expect(JSON.parse(summary)).not.toHaveProperty('notebook/accuracy');
  expect(params).toMatchObject({ displayName: 'run' });
  run.iteration(5);
  await forward(run);
  expect(warned()).toEqual([]);
  expect(rows('run-2')).toEqual(upTo(5));
  expect([...stub.runs.keys()]).toEqual(['team/edits/run', 'team/edits/run-2']);
});

it('finds its id again if its note is lost, and takes the next one if others wrote there too', async () => {
  const run = new FakeRun(folder());
  run.iterations(0, 1);
  await forward(run);
  note(2, 0.5);
  await forward(run);
  rmSync(run.paths.wandb);
  run.iteration(2);
  await forward(run);
  expect(rows('run-2')).toEqual(upTo(2));
  stub.write('run-2', { 'wandb-history.jsonl': ['{"x":1,"_step":3,"_timestamp":1}'] }, {});
  run.iteration(3);
  await forward(run);
  expect(rows('run-2')).toEqual([...upTo(2), [3, 'notebook']]);
  expect(rows('run-3')).toEqual(upTo(3));
});

it('leaves a run that another program began under its id, also if that logged no row', async () => {
  const first = new FakeRun(folder());
  await forward(first);
  stub.run('run').config = { _wandb: { value: { t: { '5': '1' } } } };
  stub.run('run').files['output.log'].push('noted');
  const run = new FakeRun(folder());
  recordWandbId(run.paths, 'run');
  run.iterations(0, 1);
  await forward(run);
  expect(stub.run('run').files['output.log']).toEqual(['noted']);
  expect(rows('run-2')).toEqual(upTo(1));
});

it('keeps its id if it went back, and has fewer rows than it had sent', async () => {
  const run = new FakeRun(folder());
  run.iterations(0, 5);
  await forward(run);
  stub.mayChange = true;
  run.goOnFrom(2);
  run.iteration(3);
  await forward(run);
  rmSync(run.paths.wandb);
  await forward(run);
  run.iterations(4, 7);
  await forward(run);
  expect(rows('run')).toEqual(upTo(7));
  expect(warned()).toEqual([]);
  expect([...stub.runs.keys()]).toEqual(['team/edits/run']);
});

it('knows its own rows whose answer it never saw', async () => {
  const run = new FakeRun(folder());
  run.iterations(0, 2);
  await forward(run);
  run.iterations(3, 4);
  stub.fault = ({ what }) => (what === 'file_stream' ? { kind: 'lost' } : null);
  const tracking = following(run, stub, said);
  await until(() => rows('run').length === 5);
  await tracking.giveUp();
  expect(readWandbCursor(run.paths)).toMatchObject({ iteration: 2 });
  stub.fault = () => null;
  run.iteration(5);
  await forward(run);
  expect(rows('run')).toEqual(upTo(5));
  expect(warned()).toEqual([]);
});

it('gets the next id if another run was made under its id after its own was removed', async () => {
  const run = new FakeRun(folder());
  run.iterations(0, 4);
  await forward(run);
  stub.runs.clear();
  const other = new FakeRun(folder());
  other.iterations(0, 1);
  await forward(other, { ...other.record, created_at: '2026-02-02T00:00:00.000Z' });
  run.iteration(5);
  await forward(run);
  expect([rows('run'), rows('run-2')]).toEqual([upTo(1), upTo(5)]);
  // A run without lines leaves its id free.
  stub.runs.clear();
  const empty = new FakeRun(folder());
  await forward(empty, { ...empty.record, created_at: '2026-03-03T00:00:00.000Z' });
  for (const file of Object.values(stub.run('run').files)) file.length = 0;
  stub.runs.set('team/edits/run-2', stub.run('run'));
  run.iteration(6);
  await forward(run);
  expect(rows('run-2')).toEqual(upTo(6));
});
