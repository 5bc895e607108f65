import { existsSync, readFileSync, rmSync } from 'node:fs';
import { expect, it } from 'vitest';
import { gpuNumbers, sampleSystem } from '../../../src/run/track/system.js';
import { testFolders } from '../../support/folder.js';
import { FakeRun } from './run_directory.js';

const folder = testFolders('system');

it('reads what nvidia-smi prints, and leaves out what it has no number for', () => {
  expect(gpuNumbers('0, 87, 40, 1024, 81559, 61, 412.33\n1, [N/A], 0, 3, 81559, 30, [Not Supported]\n')).toEqual({
    ...{ 'gpu.0.gpu': 87, 'gpu.0.memory': 40, 'gpu.0.memoryUsedMB': 1024, 'gpu.0.memoryTotalMB': 81559 },
    ...{ 'gpu.0.temp': 61, 'gpu.0.powerWatts': 412.33 },
    ...{ 'gpu.1.memory': 0, 'gpu.1.memoryUsedMB': 3, 'gpu.1.memoryTotalMB': 81559, 'gpu.1.temp': 30 },
  });
  expect(gpuNumbers('NVIDIA-SMI has failed\n')).toEqual({});
});

it('writes a line for each look, and asks for GPUs no more if there are none', async () => {
  const run = new FakeRun(folder());
  const ending = new AbortController();
  let asked = 0;
  let looks = 0;
  const clock = {
    now: () => 0,
    after: (_ms: number, callback: () => void) => {
      if (++looks === 3) setImmediate(() => ending.abort());
      else setImmediate(callback);
      return () => undefined;
    },
  };
  const queryGpus = async (): Promise<null> => {
    asked++;
    return null;
  };
  await sampleSystem({ paths: run.paths, pids: () => [process.pid, 999_999_999], clock, queryGpus }, ending.signal);
  const lines = readFileSync(run.paths.systemMetrics, 'utf8').trim().split('\n');
  expect(lines).toHaveLength(3);
  expect(asked).toBe(1);
  const sample = JSON.parse(lines[0]) as Record<string, number>;
  expect(Math.abs(sample['at'] - Date.now() / 1000)).toBeLessThan(100);
  expect(sample['memory_percent']).toBeGreaterThan(0);
  expect(sample['proc.memory.rssMB']).toBeGreaterThan(10);
});

it('does not bring back a run directory that is missing', async () => {
  const run = new FakeRun(folder());
  rmSync(run.paths.dir, { recursive: true });
  const sampling = sampleSystem({ paths: run.paths, pids: () => [], everyMs: 1 }, new AbortController().signal);
  await expect(sampling).rejects.toMatchObject({ message: expect.stringContaining('cannot write') as string });
  expect(existsSync(run.paths.dir)).toBe(false);
});
