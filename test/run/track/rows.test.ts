import { appendFileSync, rmSync, writeFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import { RowFollower } from '../../../src/run/track/rows.js';
import { testFolders } from '../../support/folder.js';
import { FakeRun } from './run_directory.js';

const folder = testFolders('rows');

function following(run: FakeRun, marks: RowFollower['marks'] = []): RowFollower {
  return new RowFollower(run.paths.metrics, marks, () => run.record.attempts);
}

function take(follower: RowFollower): number[] {
  const taken: number[] = [];
  for (let rows = follower.next(); rows.length > 0; rows = follower.next()) {
    taken.push(...rows.map(({ iteration }) => iteration));
    follower.confirm(rows[rows.length - 1]);
  }
  return taken;
}

it('gives each row once, and again until it is confirmed', () => {
  const run = new FakeRun(folder());
  const follower = following(run);
  expect(follower.next()).toEqual([]);
  run.iterations(1, 3);
  expect(follower.next().map(({ index }) => index)).toEqual([0, 1, 2]);
  const [first] = follower.next();
  follower.confirm(first);
  expect(follower.next().map(({ iteration }) => iteration)).toEqual([2, 3]);
  expect(take(follower)).toEqual([2, 3]);
  expect(take(following(run, follower.marks))).toEqual([]);
  follower.close();
});

it('gives all rows from the last mark on that still holds', () => {
  const run = new FakeRun(folder());
  run.iterations(1, 1200);
  const follower = following(run);
  const all = follower.next();
  for (const row of [499, 700, 999, 1199].map((index) => all[index])) follower.confirm(row);
  expect(follower.marks.map(({ lines }) => lines)).toEqual([500, 1000, 1200]);
  run.goOnFrom(1100);
  run.iterations(1101, 1102);
  const again = take(follower);
  expect([again[0], again.at(-1), again.length]).toEqual([1001, 1102, 102]);
  // The same numbers again are the same lines.
  expect(take(following(run, follower.marks))).toEqual([]);
});

it('notices a file in the place of another, whatever its size', () => {
  const run = new FakeRun(folder());
  run.iterations(1, 3);
  const follower = following(run);
  take(follower);
  run.replace(2, { 'reward/mean': 9 });
  expect(take(follower)).toEqual([1, 2, 3]);
});

it('says when rows were made: attempts say when they began, rows how long they took', () => {
  const run = new FakeRun(folder());
  run.iterations(1, 4);
  run.goOnFrom(2);
  run.iterations(3, 4);
  const seconds = following(run)
    .next()
    .map(({ mark }) => [mark.at - 1767225600, mark.runtime]);
  expect(seconds).toEqual([
    [0.5, 0.5],
    [1, 1],
    [3600.5, 1.5],
    [3601, 2],
  ]);
});

it('waits for the end of a line', () => {
  const run = new FakeRun(folder());
  const follower = following(run);
  appendFileSync(run.paths.metrics, '{"iteration":1');
  expect(follower.next()).toEqual([]);
  appendFileSync(run.paths.metrics, '}\n');
  expect(take(follower)).toEqual([1]);
  // As a crash of the machine leaves it: the run cuts it off when it goes on.
  writeFileSync(run.paths.metrics, '{"iteration":1}\n\0\0\0');
  expect(take(follower)).toEqual([]);
});

it('begins again where the file is missing and comes back', () => {
  const run = new FakeRun(folder());
  run.iterations(1, 2);
  const follower = following(run);
  take(follower);
  rmSync(run.paths.metrics);
  expect(follower.next()).toEqual([]);
  expect(follower.confirmed).toBe(0);
  writeFileSync(run.paths.metrics, '{"iteration":1}\n');
  expect(take(follower)).toEqual([1]);
});
