/** Checks whether what runs will write fits on the disk of their folder. */
import { statfsSync } from 'node:fs';
import { RunError } from '../../core/errors.js';
import { requireWritable } from '../../core/files.js';
import { checkpointBytes, type ShapeOf } from '../../recipes/shared/memory.js';
import { isTrainable } from '../../config/recipes.js';
import { recipeOf } from '../../recipes/settings.js';
import type { RunSettings, TrainedSettings } from '../../config/schema/run.js';
import { gibibytes } from './devices.js';

/** Reserve for everything but checkpoints, which is not estimated: with less than this a disk counts as full. */
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
 * Estimated bytes that checkpoints will take beyond existing ones, by folder: all that these runs keep, and the one being written. Runs of another
 * program, and runs whose settings do not tell the size of their models, count as nothing.
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

/** How many checkpoints the folder gains until the last iteration. */
function checkpointsToCome({ num_iterations, checkpoint }: TrainedSettings, from: number): number {
  const { save_every_n_iterations: save, keep_every_n_iterations: keep, keep_last, keep_best } = checkpoint;
  const saved = Math.ceil(num_iterations / save) - Math.floor(from / save);
  const forGood = keep === null ? 0 : Math.floor(num_iterations / keep) - Math.floor(from / keep);
  // A run that continues already has its latest ones.
  return Math.min(saved, forGood + (from === 0 ? keep_last : 0)) + (keep_best === null ? 0 : 1);
}

/** Checks that a folder, or the one it will be created in, is writable and has room for this many bytes of checkpoints. Raises RunError. */
export function checkFolder(folder: string, bytes: number, freeOf: FreeSpace = freeSpace): void {
  const there = requireWritable(folder, OTHER_FOLDER);
  const free = freeOf(there);
  if (free < MIN_FREE_BYTES) {
    throw new RunError(`the disk is full: ${sizeText(free)} are free, and ${sizeText(MIN_FREE_BYTES)} are the least`, {
      where: there,
      next: `Free some space. ${OTHER_FOLDER}`,
    });
  }
  if (free >= bytes) return;
  throw new RunError(
    `the disk is too small: ${sizeText(free)} are free, and the checkpoints that the runs here keep are estimated to take ${sizeText(bytes)}`,
    {
      where: there,
      next: `Free some space, or keep fewer: checkpoint.keep_every_n_iterations (null keeps none for good), checkpoint.keep_last. ${OTHER_FOLDER}`,
    },
  );
}

/** Whole MiB below 10 GiB: two sizes that are compared must not look equal. */
function sizeText(bytes: number): string {
  return bytes < 10 * 2 ** 30 ? `${Math.floor(bytes / 2 ** 20)} MiB` : gibibytes(bytes);
}
