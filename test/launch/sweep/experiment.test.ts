import { writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { afterEach, expect, it, vi } from 'vitest';
import { loadExperiment } from '../../../src/config/experiment/load.js';
import { mainMemoryOf } from '../../../src/launch/machine/memory.js';
import { prepareSweep, sweep, type PreparedSweep } from '../../../src/launch/sweep/experiment.js';
import { testFolders } from '../../support/folder.js';
import { FakeRunner, FakeView, settle } from './fakes.js';

const newFolder = testFolders('sweep');
afterEach(() => void vi.restoreAllMocks());
const configs = resolve(import.meta.dirname, '../../../configs');

class HearingView extends FakeView {
  readonly remarks: string[] = [];
  override remark(sentence?: string): void {
    if (sentence !== undefined) this.remarks.push(sentence);
  }
}

/** Three runs, each of which takes one unit of the memory that is free. */
async function prepared(units: number, maxParallel: number | null): Promise<PreparedSweep> {
  const folder = newFolder();
  const file = join(folder, 'three.jsonnet');
  const base = `(import '${configs}/text_start.jsonnet') + (import '${configs}/lib/text_tiny.libsonnet')`;
  writeFileSync(
    file,
    `{ name: 'three', base: ${base}, axes: { seed: { [s]: { seed: std.parseInt(s) } for s in ['1', '2', '3'] } } }`,
  );
  const env = { ...process.env, APP__BASE_EXP_DIR: join(folder, 'runs'), APP__DATA_DIR: join(folder, 'data') };
  const limits = { maxParallel, retries: 0, failFast: false, budget: null };
  const found = prepareSweep(await loadExperiment({ file, env }), { only: null, failed: false }, limits);
  const devices = { gpus: [], cpus: 4 };
  const each = mainMemoryOf(new Map(), devices)(found.jobs[0].config.settings);
  // After it was prepared: servers that start meanwhile take memory.
  vi.spyOn(process, 'constrainedMemory').mockReturnValue(units * each);
  return { ...found, devices };
}

it.each([
  [2.5, null, [2, 3], /^at most 2 runs at once/],
  [3.5, null, [3], null],
  [1.5, 2, [2, 3], /^warning: the 2 runs that --max-parallel lets go at once /],
] as const)(
  'a sweep with memory for %d runs and --max-parallel %s starts %j and says so',
  async (units, maxParallel, started, remark) => {
    const runner = new FakeRunner();
    const view = new HearingView();
    const ended = sweep(await prepared(units, maxParallel), runner, view, new AbortController().signal);
    for (const count of started) {
      await settle();
      expect(runner.names).toHaveLength(count);
      runner.attempts[0].end();
    }
    for (const attempt of runner.attempts) attempt.end();
    await ended;
    expect(view.remarks).toEqual(remark === null ? [] : [expect.stringMatching(remark)]);
  },
);
