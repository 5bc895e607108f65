/** A W&B run that others write to as well: nothing of theirs is lost, and nothing of the run's own. */
import { setTimeout as delay } from 'node:timers/promises';
import { rmSync, writeFileSync } from 'node:fs';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { readWandbCursor } from '../../../src/track/wandb/cursor.js';
import { testFolders } from '../../support/folder.js';
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
function rows(): unknown[] {
  return stub.history('run').map(({ _step, iteration }) => [_step, iteration ?? 'notebook']);
}

/** The line that said what others wrote, among those since the last call. */
function warned(): string[] {
  return said.splice(0).filter((line) => line.includes('not noted as sent'));
}

it('goes on behind what others wrote, says so once, and keeps their summary', async () => {
  const run = new FakeRun(folder());
  run.iterations(0, 2);
  run.says('first');
  await forward(run);
  expect(warned()).toEqual([]);
  note(3, 0.5);
  note(4, 0.75);
  run.iterations(3, 4);
  run.says('second');
  await forward(run);
  expect(rows()).toEqual([
    ...[0, 1, 2].map((i) => [i, i]),
    [3, 'notebook'],
    [4, 'notebook'],
    // From here on steps are two ahead of iterations.
    ...[3, 4].map((i) => [i + 2, i]),
  ]);
  const { files, summary } = stub.run('run');
  expect(files['output.log'].map((line) => line.replace(/^2026\S+ /, ''))).toEqual([
    'first',
    'noted 3',
    'noted 4',
    'second',
  ]);
  expect(files['wandb-events.jsonl'].filter((line) => line === '{"system.cpu":1}')).toHaveLength(2);
  expect(JSON.parse(summary)).toMatchObject({ 'notebook/accuracy': 0.75, iteration: 4, _step: 6 });
  expect(warned()).toEqual([
    'this run has 2 rows, 2 lines of output, 2 samples of the load at W&B that are not noted as sent from here: they stay, and what follows goes behind that, from step 5 on',
  ]);
  run.iteration(5);
  await forward(run);
  expect(warned()).toEqual([]);
  note(8, 0.9);
  run.iteration(6);
  await forward(run);
  expect(rows().slice(5)).toEqual([
    [5, 3],
    [6, 4],
    [7, 5],
    [8, 'notebook'],
    [9, 6],
  ]);
});

it('has what a run did again in its places on both sides of what others wrote', async () => {
  const run = new FakeRun(folder());
  run.iterations(0, 3);
  await forward(run);
  note(4, 0.5);
  run.iterations(4, 5);
  await forward(run);
  stub.mayChange = true;
  run.goOnFrom(2);
  run.iterations(3, 7);
  await forward(run);
  expect(rows()).toEqual([...[0, 1, 2, 3].map((i) => [i, i]), [4, 'notebook'], ...[4, 5, 6, 7].map((i) => [i + 1, i])]);
});

it('goes behind others also where the run had gone back before, whose rows are more than it has', async () => {
  const run = new FakeRun(folder());
  run.iterations(0, 5);
  await forward(run);
  stub.mayChange = true;
  run.goOnFrom(2);
  run.iteration(3);
  await forward(run);
  expect(warned()).toEqual([]);
  stub.mayChange = false;
  note(6, 0.5);
  run.iterations(4, 7);
  stub.mayChange = true;
  await forward(run);
  expect(rows()).toEqual([...[0, 1, 2, 3, 4, 5].map((i) => [i, i]), [6, 'notebook'], [7, 6], [8, 7]]);
});

it('knows its own rows whose answer it never saw', async () => {
  const run = new FakeRun(folder());
  run.iterations(0, 2);
  await forward(run);
  run.iterations(3, 4);
  stub.fault = ({ what }) => (what === 'file_stream' ? { kind: 'lost' } : null);
  const tracking = following(run, stub, said);
  await until(() => rows().length === 5);
  await tracking.giveUp();
  expect(readWandbCursor(run.paths)).toMatchObject({ iteration: 2, sending: { history: 5 } });
  stub.fault = () => null;
  run.iteration(5);
  await forward(run);
  expect(rows()).toEqual([0, 1, 2, 3, 4, 5].map((i) => [i, i]));
  expect(warned()).toEqual([]);
});

it('does not take as many rows of others for its own, which never arrived', async () => {
  const run = new FakeRun(folder());
  run.iterations(0, 2);
  await forward(run);
  run.iterations(3, 4);
  stub.fault = ({ what }) => (what === 'file_stream' ? { kind: 'cut' } : null);
  const tracking = following(run, stub, said);
  await until(() => readWandbCursor(run.paths)?.sending !== null);
  await tracking.giveUp();
  // What had left before is cut off, too.
  await delay(200);
  stub.fault = () => null;
  stub.write(
    'run',
    { 'wandb-history.jsonl': ['{"x":1,"_step":3,"_timestamp":1}', '{"x":2,"_step":4,"_timestamp":2}'] },
    {},
  );
  await forward(run);
  expect(rows()).toEqual([
    [0, 0],
    [1, 1],
    [2, 2],
    [3, 'notebook'],
    [4, 'notebook'],
    [5, 3],
    [6, 4],
  ]);
});

it('knows the places again from the server where what is noted is lost, and goes behind where it cannot', async () => {
  const run = new FakeRun(folder());
  run.iterations(0, 1);
  run.says('first');
  await forward(run);
  note(2, 0.5);
  run.iterations(2, 3);
  run.says('second');
  await forward(run);
  const before = rows();
  rmSync(run.paths.wandb);
  await forward(run);
  expect(rows()).toEqual(before);
  note(5, 0.6);
  rmSync(run.paths.wandb);
  await forward(run);
  expect(rows()).toEqual([...before, [5, 'notebook'], ...[0, 1, 2, 3].map((i) => [i + 6, i])]);
});

it('goes on with what an earlier version noted', async () => {
  const run = new FakeRun(folder());
  run.iterations(0, 5);
  await forward(run);
  run.goOnFrom(2);
  stub.mayChange = true;
  run.iteration(3);
  await forward(run);
  const { behind, reached, sending, ...old } = { ...readWandbCursor(run.paths) };
  expect([behind, reached, sending]).toEqual([[], 6, null]);
  writeFileSync(run.paths.wandb, JSON.stringify(old));
  run.iterations(4, 6);
  await forward(run);
  expect(rows()).toEqual([0, 1, 2, 3, 4, 5, 6].map((i) => [i, i]));
});

it('leaves no gap where another run was made under its id after its own was removed', async () => {
  const run = new FakeRun(folder());
  run.iterations(0, 4);
  await forward(run);
  stub.runs.clear();
  const other = new FakeRun(folder());
  other.iterations(0, 1);
  await forward(other, { ...other.record, created_at: '2026-02-02T00:00:00.000Z' });
  run.iteration(5);
  await forward(run);
  expect(rows()).toEqual([...[0, 1].map((i) => [i, i]), ...[0, 1, 2, 3, 4, 5].map((i) => [i + 2, i])]);
});
