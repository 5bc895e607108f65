import { mkdirSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { describeEnding, describeInterruption } from '../../src/cli/run.js';
import { loadConfig } from '../../src/config/load.js';
import { saveCheckpoint } from '../../src/run/checkpoints.js';
import { RunPaths } from '../../src/run/paths.js';
import type { RunState } from '../../src/run/state.js';
import { testFolders } from '../support/folder.js';

const newFolder = testFolders('ending');

const finished: RunState = {
  state: 'finished',
  iteration: 350,
  num_iterations: 1000,
  heartbeat: '',
  reason: null,
  stopped_early: false,
};
const overlays = ['configs/lib/tiny.libsonnet'];

describe('the end of a run', () => {
  it('that stopped because its loss did not improve explains how to continue', async () => {
    const sets = ['algorithm.sft.patience=4', 'num_iterations=1000'];
    const { settings } = await loadConfig({ file: 'configs/sft_s.jsonnet', overlays, sets });
    const reason = 'the held-out loss has not improved for 4 validations';
    const flat = { ...finished, stopped_early: true, reason };
    for (const already of [true, false]) {
      expect(describeEnding(settings, flat, already)).toBe(
        [
          `sft_s stopped early at iteration 350 of 1000: ${reason}. Raising num_iterations does not continue it.`,
          'To continue, raise the patience: --set algorithm.sft.patience=8 --allow-changes algorithm.sft.patience',
        ].join('\n'),
      );
    }
  });

  it('whose learning rate fell until the last iteration names what is not rejected', async () => {
    const falls = ['optimizer.schedule=cosine', 'num_iterations=350'];
    const ending = async (config: string, ...sets: string[]): Promise<string | null> => {
      const file = `configs/${config}.jsonnet`;
      return describeEnding((await loadConfig({ file, overlays, sets: [...falls, ...sets] })).settings, finished, true);
    };
    expect(await ending('sft_s')).toBe(
      'sft_s is finished, and its learning rate schedule has ended. To continue with the schedule stretched to the new end: --set num_iterations=700 --allow-changes num_iterations',
    );
  });

  it('is shown for a run that was finished before, and for no other', async () => {
    const { settings } = await loadConfig({ file: 'experiments/foreign/quadratic.jsonnet' });
    expect(describeEnding(settings, finished, false)).toBeNull();
    expect(describeEnding(settings, finished, true)).toBe(
      'quadratic is finished. To continue, raise num_iterations: --set num_iterations=80',
    );
  });
});

it('a run that was stopped says what there is to continue from', () => {
  const paths = new RunPaths(newFolder(), 'mine');
  mkdirSync(paths.dir);
  expect(describeInterruption(paths)).toBe(
    'mine stopped before its first checkpoint. Repeat the command to start from scratch.',
  );
  saveCheckpoint(paths, 20, { 'trainer.json': '' });
  expect(describeInterruption(paths)).toBe(
    'mine stopped with a checkpoint of iteration 20. Repeat the command to continue.',
  );
});
