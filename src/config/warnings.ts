/** What a person should know about settings that are valid. */
import { isTrainable, recipeOf } from '../recipes/settings.js';
import type { RunSettings, TrainedSettings } from '../schema/run.js';
import { growable, optimizerSteps } from './growth.js';

export function warningsOf(settings: RunSettings): string[] {
  return isTrainable(settings) ? [...ofTraining(settings), ...ofEnvironment(settings)] : [];
}

/** Variables by which PyTorch programs manage the memory of GPUs, and NCCL what they say to each other. */
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
  if (!growable(settings) && optimizerSteps(settings) <= algorithm.warmup_steps) {
    warnings.push(
      `optimizer.schedule: '${optimizer.schedule}' has no effect; the run ends within its ${algorithm.warmup_steps} warm-up steps`,
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
