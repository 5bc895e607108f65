import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { CheckpointError } from '../../src/core/errors.js';
import { readTrainerState, trainerFile } from '../../src/train/trainer_state.js';
import { testFolders } from '../support/folder.js';

const newFolder = testFolders('trainer-state');

it('comes back as it was written, with what a training has no rule for', () => {
  const folder = newFolder();
  const write = (files: ReturnType<typeof trainerFile>): void => {
    for (const [name, content] of Object.entries(files)) writeFileSync(join(folder, name), content as string);
  };
  write(trainerFile({ iteration: 3, optimizer_steps: 6, latent_mean_square: 0.5 }));
  const flat = { best_held_out_loss: null, flat_validations: 0, validated_iteration: 0 };
  expect(readTrainerState(folder)).toEqual({
    format: 1,
    iteration: 3,
    optimizer_steps: 6,
    ...flat,
    latent_mean_square: 0.5,
  });
  writeFileSync(join(folder, 'trainer.json'), '{"format": 1,');
  expect(() => readTrainerState(folder)).toThrow(CheckpointError);
  for (const steps of ['null', '-1', '2.5', '1e999']) {
    writeFileSync(join(folder, 'trainer.json'), `{"format": 1, "iteration": 3, "optimizer_steps": ${steps}}`);
    expect(() => readTrainerState(folder)).toThrow(/invalid trainer state: optimizer_steps: /);
  }
});
