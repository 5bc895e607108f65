/** Warnings about valid settings. */
import { isTrainable, recipeOf } from './recipes.js';
import type { RunSettings, TrainedSettings } from '../schema/run.js';
import { growable, optimizerSteps } from './growth.js';

export function warningsOf(settings: RunSettings): string[] {
  return isTrainable(settings) ? [...ofTraining(settings), ...ofEnvironment(settings)] : [];
}

/** AdamW's step is about as large as the learning rate whatever the gradient, and weights are of the order of 0.01 to 1. */
const LARGEST_USUAL_LEARNING_RATE = 0.1;

/** Environment variables that control PyTorch's GPU memory and NCCL's communication. */
const TORCH_VARIABLE = /^(?:PYTORCH_|TORCH_|NCCL_)/;

function ofEnvironment({ launch: { env, command } }: TrainedSettings): string[] {
  const names = command === null ? Object.keys(env).filter((name) => TORCH_VARIABLE.test(name)) : [];
  const visible = command === null && 'CUDA_VISIBLE_DEVICES' in env;
  return [
    ...(names.length === 0
      ? []
      : [
          `launch.env: ${names.join(', ')} without effect; nothing here is computed by PyTorch, and memory is given back by itself`,
        ]),
    ...(visible
      ? [
          'launch.env: CUDA_VISIBLE_DEVICES without effect; launch.devices says which GPUs a run may use, and launch.placement what they compute',
        ]
      : []),
  ];
}

function ofTraining(settings: TrainedSettings): string[] {
  const { data, algorithm, optimizer, checkpoint, track } = settings;
  const warnings = [...recipeOf(settings).warnings(settings)];
  if (data?.validation.some(({ coefficient }) => coefficient !== null)) {
    warnings.push(
      'data.validation: coefficient has no effect; of each held-out set the same prompts are evaluated once',
    );
  }
  const steps = optimizerSteps(settings);
  if (algorithm.warmup_steps > 0 && steps <= algorithm.warmup_steps) {
    const unused = growable(settings) ? '' : `; optimizer.schedule '${optimizer.schedule}' has no effect`;
    warnings.push(
      `algorithm.warmup_steps: found ${algorithm.warmup_steps}; the run ends within them, after ${steps} steps${unused}`,
    );
  }
  if (optimizer.learning_rate > LARGEST_USUAL_LEARNING_RATE) {
    warnings.push(
      `optimizer.learning_rate: found ${optimizer.learning_rate}; AdamW moves every weight by about that much in one step, and usual values lie between 1e-6 and 1e-2`,
    );
  }
  const published = track.push_to_hub?.every_n_iterations ?? null;
  const { save_every_n_iterations: saved } = checkpoint;
  if (published !== null && published % saved !== 0) {
    warnings.push(
      `track.push_to_hub: only checkpoints are published, and there is one every ${saved} iterations: of every ${published} only those that both divide`,
    );
  }
  return warnings;
}
