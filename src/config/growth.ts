/** How long a run is, and whether it may become longer. */
import { isTrainable, recipeOf } from '../recipes/settings.js';
import type { RunSettings, TrainedSettings } from '../schema/run.js';

/** Optimizer steps of a whole run. */
export function optimizerSteps(settings: TrainedSettings): number {
  return settings.num_iterations * recipeOf(settings).stepsPerIteration(settings);
}

/** Whether a raised num_iterations leaves what the iterations before it come to as it is. */
export function growable(settings: RunSettings): boolean {
  // What another trainer does with the number is not known, but it is told the same one at every resume.
  if (!isTrainable(settings)) return true;
  // Exhaustive on purpose: another schedule has to say whether it depends on the number of iterations.
  const { schedule, decay_steps } = settings.optimizer;
  const independent: Record<TrainedSettings['optimizer']['schedule'], boolean> = {
    constant: true,
    linear: decay_steps !== null,
    cosine: decay_steps !== null,
  };
  return independent[schedule];
}
