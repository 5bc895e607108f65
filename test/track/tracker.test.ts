import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, it } from 'vitest';
import { readMetrics } from '../../src/run/metrics.js';
import { RunPaths } from '../../src/run/paths.js';
import { combineTrackers, nullTracker, RunDirectoryTracker } from '../../src/track/tracker.js';

const base = mkdtempSync(join(tmpdir(), 'editrl-track-'));
afterAll(() => {
  rmSync(base, { recursive: true, force: true });
});

it('records what it is given, through any combination', async () => {
  const paths = new RunPaths(base, 'run');
  const directory = new RunDirectoryTracker(paths);
  const tracker = combineTrackers([nullTracker, directory]);
  await tracker.iteration(0, { 'validation/sampled/mean': 4 });
  await tracker.iteration(1, { 'reward/mean': 5 });
  await tracker.flush();
  expect(readMetrics(paths)).toHaveLength(2);
  await tracker.finish();
  expect(directory.heldTraining()).toMatch(
    /^tracking held the training for \d+\.\d\d ms a row \(longest \d+\.\d\d ms\), \d+\.\d\d ms a checkpoint$/,
  );
  expect(readMetrics(paths)[1]).toEqual({ iteration: 1, metrics: { 'reward/mean': 5 } });
});
