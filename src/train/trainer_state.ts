/** A checkpoint's `trainer.json`: everything that a resumed run needs in addition to the policy's files. */
import { join } from 'node:path';
import { z } from 'zod';
import { CheckpointError } from '../core/errors.js';
import { readPlainText } from '../core/plain_file.js';
import type { CheckpointFiles } from '../models/files.js';
import { TRAINER_FILE } from '../run/checkpoints.js';

export interface TrainerState extends StoppingState {
  readonly format: 1;
  readonly iteration: number;
  readonly optimizer_steps: number;
  /** Mean square of an autoencoder's latents, if an autoencoder is trained. */
  readonly latent_mean_square?: number;
}

/** The file beside the policy's files. It omits the stopping rule if training has none. */
export function trainerFile(
  state: Pick<TrainerState, 'iteration' | 'optimizer_steps'> & Partial<TrainerState>,
): CheckpointFiles {
  const { iteration, optimizer_steps, ...more } = state;
  const whole: TrainerState = { format: 1, iteration, optimizer_steps, ...NEVER_VALIDATED, ...more };
  return { [TRAINER_FILE]: `${JSON.stringify(whole, null, 2)}\n` };
}

const counter = z.int().nonnegative();

const trainerSchema = z.looseObject({
  iteration: counter,
  optimizer_steps: counter,
  best_held_out_loss: z.number().nullish(),
  flat_validations: counter.optional(),
  validated_iteration: counter.optional(),
  latent_mean_square: z.number().optional(),
});

/** Raises CheckpointError when the file cannot be read or its counters are not integers. */
export function readTrainerState(folder: string): TrainerState {
  const path = join(folder, TRAINER_FILE);
  let found: unknown;
  try {
    found = JSON.parse(readPlainText(path) ?? '');
  } catch (cause) {
    throw new CheckpointError('cannot read the trainer state', { where: path, cause });
  }
  const parsed = trainerSchema.safeParse(found);
  if (parsed.success) return parsed.data as unknown as TrainerState;
  const [{ path: at, message }] = parsed.error.issues;
  throw new CheckpointError(`invalid trainer state: ${at.join('.')}: ${message}`, { where: path });
}

export interface StoppingRule {
  /** Null disables early stopping. */
  readonly patience: number | null;
  /** Minimum decrease of the held-out loss below the best that counts as an improvement. */
  readonly min_delta: number;
}

/** The state in a checkpoint's trainer.json. */
export interface StoppingState {
  readonly best_held_out_loss: number | null;
  readonly flat_validations: number;
  /** The latest validation that the other two fields include. */
  readonly validated_iteration: number;
}

/** The state before the first validation. */
export const NEVER_VALIDATED: StoppingState = { best_held_out_loss: null, flat_validations: 0, validated_iteration: 0 };

export class EarlyStopping {
  #state = NEVER_VALIDATED;

  constructor(private readonly rule: StoppingRule) {}

  get state(): StoppingState {
    return this.#state;
  }

  /** Continues from a checkpoint's state. */
  restore({ best_held_out_loss, flat_validations, validated_iteration }: StoppingState): void {
    this.#state = { best_held_out_loss, flat_validations, validated_iteration };
  }

  /** Counts a validation. Repeated validations and the one before training do not count. */
  note(iteration: number, loss: number): void {
    const { best_held_out_loss: best, flat_validations: flat, validated_iteration: noted } = this.#state;
    if (iteration === noted) return;
    const better = best === null || loss < best - this.rule.min_delta;
    this.#state = {
      best_held_out_loss: better ? loss : best,
      flat_validations: better ? 0 : flat + 1,
      validated_iteration: iteration,
    };
  }

  /** Number of validations without improvement if it reaches `patience`. Else null. */
  get exhausted(): number | null {
    const { patience } = this.rule;
    const { flat_validations: flat } = this.#state;
    return patience === null || flat < patience ? null : flat;
  }
}
