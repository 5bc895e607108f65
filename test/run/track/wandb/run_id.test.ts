import { writeFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import { recordWandbId, recordedWandbId, wandbIdOfEnvironment } from '../../../../src/run/track/wandb/environment.js';
import { testFolders } from '../../../support/folder.js';
import { FakeRun } from '../run_directory.js';

const folder = testFolders('wandb_id');

it('is what WANDB_RUN_ID says', () => {
  expect(wandbIdOfEnvironment({ WANDB_RUN_ID: ' sft_s__rl_s ' })).toBe('sft_s__rl_s');
  expect(wandbIdOfEnvironment({ WANDB_RUN_ID: '' })).toBeNull();
  expect(wandbIdOfEnvironment({})).toBeNull();
});

it.each(['a/b', 'a b', 'a#', 'x'.repeat(129)])('refuses %s', (id) => {
  expect(() => wandbIdOfEnvironment({ WANDB_RUN_ID: id })).toThrow(/found '.*'; allowed: 1 to 128 characters/);
});

it('is kept in the run directory', () => {
  const { paths } = new FakeRun(folder());
  expect(recordedWandbId(paths)).toBeNull();
  recordWandbId(paths, 'mine');
  expect(recordedWandbId(paths)).toBe('mine');
  writeFileSync(paths.wandbId, '../other\n');
  expect(() => recordedWandbId(paths)).toThrow(/invalid W&B run id/);
});
