/** How long a run is, and whether it may become longer. */
import { isTrainable, recipeOf } from './recipes.js';
import type { RunSettings, TrainedSettings } from '../schema/run.js';

/** Optimizer steps of a whole run. */
export function optimizerSteps(settings: TrainedSettings): number {
  return settings.num_iterations * recipeOf(settings).stepsPerIteration(settings);
}

/** Whether raising num_iterations leaves the results of earlier iterations unchanged. */
export function growable(settings: RunSettings): boolean {
  // It is unknown what another trainer does with the number, but every resume passes it the same one.
  if (!isTrainable(settings)) return true;
  // Exhaustive on purpose: a new schedule has to say whether it depends on the number of iterations.
  const { schedule, decay_steps } = settings.optimizer;
  const independent: Record<TrainedSettings['optimizer']['schedule'], boolean> = {
    constant: true,
    linear: decay_steps !== null,
    cosine: decay_steps !== null,
  };
  return independent[schedule];
}
