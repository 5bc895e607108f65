import { appendFileSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { expect, it } from 'vitest';
import { writeTensorboard } from '../../../src/track/tensorboard/forward.js';
import { testFolders } from '../../support/folder.js';
import { FakeRun } from '../run_directory.js';
import { must } from '../../../src/core/errors.js';

const folder = testFolders('tensorboard');
const over = AbortSignal.abort();

function write(run: FakeRun, ending: AbortSignal = over): Promise<number> {
  return writeTensorboard({ paths: run.paths, record: run.record, ending, everyMs: 5 });
}

/** The steps of a file in their order; a restart as `from STEP`. Reads the framing alone: lengths, not sums. */
function steps(run: FakeRun): (number | string)[] {
  const names = readdirSync(run.paths.tensorboardDir);
  expect(names).toHaveLength(1);
  const bytes = readFileSync(join(run.paths.tensorboardDir, names[0]));
  const found: (number | string)[] = [];
  for (let at = 0; at < bytes.length;) {
    const length = Number(bytes.readBigUInt64LE(at));
    const data = bytes.subarray(at + 12, at + 12 + length);
    // 9 bytes of time, then the step's tag and its first byte.
    const step = data[9] === 0x10 ? data[10] : 0;
    const isRestart = data.subarray(9).includes(Buffer.from([0x3a, 0x02, 0x08, 0x01]));
    const isVersion = data.includes('brain.Event');
    if (isRestart) found.push(`from ${step}`);
    else if (!isVersion) found.push(step);
    at += length + 16;
  }
  return found;
}

it('follows a run to its end', async () => {
  const run = new FakeRun(folder());
  const ending = new AbortController();
  const writing = write(run, ending.signal);
  run.iterations(0, 3);
  await delay(30);
  run.iterations(4, 5);
  ending.abort();
  expect(await writing).toBe(6);
  expect(steps(run)).toEqual([0, 1, 2, 3, 4, 5]);
});

it('goes on where it was; what a crash left half written goes', async () => {
  const run = new FakeRun(folder());
  run.iterations(1, 3);
  await write(run);
  appendFileSync(join(run.paths.tensorboardDir, readdirSync(run.paths.tensorboardDir)[0]), 'half a record');
  run.iterations(4, 5);
  await write(run);
  expect(steps(run)).toEqual([1, 2, 3, 4, 5]);
});

it('says where a run that went back goes on', async () => {
  const run = new FakeRun(folder());
  run.iterations(1, 3);
  await write(run);
  run.goOnFrom(2);
  run.iteration(3, { 'policy/loss': 1 });
  run.iteration(4);
  await write(run);
  expect(steps(run)).toEqual([1, 2, 3, 'from 1', 1, 2, 3, 4]);
});

it('makes the file again where it is gone', async () => {
  const run = new FakeRun(folder());
  run.iterations(1, 2);
  await write(run);
  rmSync(run.paths.tensorboardDir, { recursive: true });
  await write(run);
  expect(steps(run)).toEqual([1, 2]);
});

it('refuses what another version noted, and a run directory that is gone', async () => {
  const run = new FakeRun(folder());
  run.iterations(1, 2);
  await write(run);
  writeFileSync(run.paths.tensorboard, '{"format":9}');
  await expect(write(run)).rejects.toMatchObject({ where: run.paths.tensorboard });
  rmSync(run.paths.tensorboard);
  const { record } = run;
  rmSync(must(run.paths.record, 'its record'));
  await expect(writeTensorboard({ paths: run.paths, record, ending: over })).rejects.toMatchObject({
    message: 'the run directory is gone',
  });
});
