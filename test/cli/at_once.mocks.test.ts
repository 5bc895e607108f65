/** What `plan` says of how many runs go at once, on a machine of four cores. */
import { writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { main } from '../../src/cli/main.js';
import type { ExperimentPlan } from '../../src/launch/plan.js';
import { testFolders } from '../support/folder.js';

vi.mock('node:os', async (original) => ({ ...(await original<object>()), availableParallelism: () => 4 }));

const newFolder = testFolders('at-once');
let file: string;
let out: string;

beforeEach(() => {
  const folder = newFolder();
  file = join(folder, 'tight.jsonnet');
  const base = `(import '${resolve('configs/text_start.jsonnet')}') + (import '${resolve('configs/lib/text_tiny.libsonnet')}')`;
  writeFileSync(
    file,
    `{ name: 'tight', base: ${base}, axes: { seed: { [s]: { seed: std.parseInt(s) } for s in ['1', '2', '3'] } } }`,
  );
  vi.stubEnv('APP__BASE_EXP_DIR', join(folder, 'runs'));
  vi.stubEnv('APP__DATA_DIR', join(folder, 'data'));
  vi.stubEnv('CUDA_VISIBLE_DEVICES', '');
  for (const stream of [process.stdout, process.stderr]) {
    vi.spyOn(stream, 'write').mockImplementation((text) => ((out += String(text)), true));
  }
});
afterEach(() => {
  vi.restoreAllMocks();
  vi.unstubAllEnvs();
});

async function said(...args: string[]): Promise<string> {
  out = '';
  expect(await main(args)).toBe(0);
  return out;
}

/** Lets the machine have memory for one and a half of the runs. */
async function forOneAndAHalf(): Promise<void> {
  const { cells } = JSON.parse(await said('plan', file, '--json')) as ExperimentPlan;
  vi.spyOn(process, 'constrainedMemory').mockReturnValue(1.5 * (cells[0].memory_bytes ?? 0));
}

describe('where memory is for fewer runs than the cores', () => {
  it('plan explains how many a sweep starts at once, in words and for machines', async () => {
    expect(await said('plan', file)).not.toContain('at once');
    await forOneAndAHalf();
    expect((await said('plan', file)).replace(/\s+/g, ' ')).toMatch(
      /at most 1 run at once: a run is estimated to need [\d.]+ GiB of memory, and [\d.]+ GiB are free; --max-parallel/,
    );
    const { at_once } = JSON.parse(await said('plan', file, '--json')) as ExperimentPlan;
    expect(at_once).toMatchObject({ most: 1, run_bytes: expect.any(Number) as number });
  });
});
