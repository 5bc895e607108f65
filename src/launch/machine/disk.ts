/** Checks whether the checkpoints of runs fit on the disk. */
import { statfsSync } from 'node:fs';
import { RunError } from '../../core/errors.js';
import { requireWritable } from '../../core/files.js';
import { checkpointBytes, type ShapeOf } from '../../recipes/shared/memory.js';
import { isTrainable } from '../../config/recipes.js';
import { recipeOf } from '../../recipes/settings.js';
import type { RunSettings, TrainedSettings } from '../../config/schema/run.js';
import { gibibytes } from './devices.js';

/** A disk with less free space counts as full. Only checkpoints are estimated, and logs need some space. */
const MIN_FREE_BYTES = 16 * 2 ** 20;

const OTHER_FOLDER = 'Name another folder: APP__BASE_EXP_DIR, or --set base_exp_dir=/path.';

/** Bytes that can be written below an existing folder. */
export type FreeSpace = (folder: string) => number;

function freeSpace(folder: string): number {
  const { bavail, bsize } = statfsSync(folder);
  return bavail * bsize;
}

/** A run to be trained, from an iteration on. */
export interface RunToTrain {
  readonly settings: RunSettings;
  readonly from: number;
}

/**
 * Estimated bytes of future checkpoints by folder: all that these runs keep, and the one being written. Runs of foreign trainers and runs with models of
 * unknown size count as 0.
 */
export function checkpointSpace(runs: readonly RunToTrain[], shapeOf: ShapeOf): ReadonlyMap<string, number> {
  const kept = new Map<string, number>();
  const largest = new Map<string, number>();
  for (const { settings, from } of runs) {
    const { base_exp_dir: folder } = settings;
    const [one, count] = isTrainable(settings)
      ? [bytesPerCheckpoint(settings, shapeOf), checkpointsToCome(settings, from)]
      : [0, 0];
    kept.set(folder, (kept.get(folder) ?? 0) + one * count);
    largest.set(folder, Math.max(largest.get(folder) ?? 0, one));
  }
  return new Map([...kept].map(([folder, bytes]) => [folder, bytes + (largest.get(folder) ?? 0)]));
}

function bytesPerCheckpoint(settings: TrainedSettings, shapeOf: ShapeOf): number {
  const parameters = settings.launch.command === null ? recipeOf(settings).parameters(settings, shapeOf) : null;
  return parameters === null ? 0 : checkpointBytes(parameters, settings.optimizer.ema_decay !== null);
}

/** The number of checkpoints that the folder gains until the last iteration. */
function checkpointsToCome({ num_iterations, checkpoint }: TrainedSettings, from: number): number {
  const { save_every_n_iterations: save, keep_every_n_iterations: keep, keep_last, keep_best } = checkpoint;
  const saved = Math.ceil(num_iterations / save) - Math.floor(from / save);
  const forGood = keep === null ? 0 : Math.floor(num_iterations / keep) - Math.floor(from / keep);
  // A resumed run already has its latest checkpoints.
  return Math.min(saved, forGood + (from === 0 ? keep_last : 0)) + (keep_best === null ? 0 : 1);
}

/** Checks that a folder, or its nearest existing parent, is writable and has space for this many bytes. Raises RunError. */
export function checkFolder(folder: string, bytes: number, freeOf: FreeSpace = freeSpace): void {
  const there = requireWritable(folder, OTHER_FOLDER);
  const free = freeOf(there);
  if (free < MIN_FREE_BYTES) {
    throw new RunError(`the disk is full: ${sizeText(free)} are free; needed: at least ${sizeText(MIN_FREE_BYTES)}`, {
      where: there,
      next: `Free some space. ${OTHER_FOLDER}`,
    });
  }
  if (free >= bytes) return;
  throw new RunError(
    `the disk is too small: ${sizeText(free)} are free, and the checkpoints of these runs are estimated to need ${sizeText(bytes)}`,
    {
      where: there,
      next: `Free some space, or keep fewer: checkpoint.keep_every_n_iterations (null keeps none permanently), checkpoint.keep_last. ${OTHER_FOLDER}`,
    },
  );
}

/** In MiB below 10 GiB, so that two different sizes do not look equal. */
function sizeText(bytes: number): string {
  return bytes < 10 * 2 ** 30 ? `${Math.floor(bytes / 2 ** 20)} MiB` : gibibytes(bytes);
}
