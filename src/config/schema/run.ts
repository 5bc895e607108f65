/** Settings that all runs have, whatever their recipe. */
import { z } from 'zod';
import type { DataSource } from './data.js';
import { launch } from './launch.js';
import { count, operation, positiveInteger, result } from '../../core/schema/mark.js';
import { runNamePattern } from './model.js';
import { track } from './track.js';
import { checkpoint, optimizer, validation, type ValidationSettings } from './training.js';

/** The fields of every run but its task. */
export const runFields = {
  run_name: operation(
    'Names the run and its folder: letters, digits, "._-", at most 96 characters.',
    z
      .string()
      .regex(runNamePattern, { error: 'a name of letters, digits, "._-", at most 96 characters, never a path' }),
  ),
  seed: result('Seed of all random numbers.', count.default(42)),
  num_iterations: result(
    'Iterations to train (for SFT: optimizer steps). It may grow on resume, unless the learning rate falls until the last one.',
    positiveInteger,
    { mayGrow: true },
  ),
  base_exp_dir: operation('The folder of all runs.', z.string().min(1).default('runs')),
  track,
  launch,
};

/** Fields of every run that our own workers train, without those of its recipe. */
export const trainedFields = { ...runFields, optimizer, validation, checkpoint };

/** The field that names the recipe. */
export function taskField<Name extends string>(name: Name) {
  return { task: result('The task.', z.literal(name)) };
}

/** The settings of a run that do not depend on its recipe. */
export type RunSettings = z.output<z.ZodObject<typeof runFields>> & { task: string };

/** Fields that all algorithms share. */
export type LearningSettings = { warmup_steps: number } & (
  | { type: 'sft'; sft: { batch_size: number; patience: number | null; min_delta: number } }
  | { type: 'grpo' | 'ppo'; inner_epochs: number; minibatches: number }
);

/** The settings of a run that our own workers train. */
export type TrainedSettings = Omit<z.output<z.ZodObject<typeof trainedFields>>, 'validation'> & {
  task: string;
  algorithm: LearningSettings;
  validation: Omit<ValidationSettings, 'temperature'>;
  /** Absent if no datasets are read. */
  data?: {
    dir: string;
    train: DataSource[];
    validation: DataSource[];
    tiny?: { folder: string } | null;
  };
};
