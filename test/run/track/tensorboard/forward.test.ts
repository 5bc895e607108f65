import { appendFileSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { writeTensorboard } from '../../../../src/run/track/tensorboard/forward.js';
import { testFolders } from '../../../support/folder.js';
import { trackerContract } from '../contract.js';
import { FakeRun } from '../run_directory.js';
import type { EditrlError } from '../../../../src/core/errors.js';

const folder = testFolders('tensorboard');
const over = AbortSignal.abort();

function write(run: FakeRun, ending: AbortSignal = over): Promise<number> {
  return writeTensorboard({ paths: run.paths, record: run.record, ending, everyMs: 5 });
}

interface Event {
  readonly step: number;
  /** Whether it says that what has been written from this step on no longer counts. */
  readonly restarts: boolean;
  readonly reward: number;
}

/** The events of the run's file after the first, which says its version. Reads the framing alone: lengths, not sums. */
function events(run: FakeRun): Event[] {
  const names = readdirSync(run.paths.tensorboardDir);
  expect(names).toHaveLength(1);
  const bytes = readFileSync(join(run.paths.tensorboardDir, names[0]));
  const found: Event[] = [];
  for (let at = 0; at + 12 <= bytes.length;) {
    const length = Number(bytes.readBigUInt64LE(at));
    const data = bytes.subarray(at + 12, at + 12 + length);
    const tag = data.indexOf('reward/mean');
    found.push({
      // 9 bytes of time, then the step's tag and its first byte.
      step: data[9] === 0x10 ? data[10] : 0,
      restarts: data.subarray(9).includes(Buffer.from([0x3a, 0x02, 0x08, 0x01])),
      // Behind the name the field's tag, and a number of single precision.
      reward: tag < 0 ? NaN : data.readFloatLE(tag + 'reward/mean'.length + 1),
    });
    at += length + 16;
  }
  // The version comes before the rows.
  return found.slice(1);
}

/** The steps in their order; a restart as `from STEP`. */
function steps(run: FakeRun): (number | string)[] {
  return events(run).map(({ step, restarts }) => (restarts ? `from ${step}` : step));
}

trackerContract('TensorBoard', {
  folder,
  forward: (run, ending = over) => write(run, ending).then(String, (error: unknown) => (error as EditrlError).toText()),
  rows: (run) => {
    let rows: (readonly [number, number])[] = [];
    for (const { step, restarts, reward } of events(run)) {
      if (restarts) rows = rows.filter(([iteration]) => iteration < step);
      else rows.push([step, reward]);
    }
    return rows;
  },
  lose: (run) => rmSync(run.paths.tensorboardDir, { recursive: true }),
  notes: (run) => run.paths.tensorboard,
});

it('continues where it was; what a crash left half written goes', async () => {
  const run = new FakeRun(folder());
  run.iterations(1, 3);
  await write(run);
  appendFileSync(join(run.paths.tensorboardDir, readdirSync(run.paths.tensorboardDir)[0]), 'half a record');
  run.iterations(4, 5);
  await write(run);
  expect(steps(run)).toEqual([1, 2, 3, 4, 5]);
});
