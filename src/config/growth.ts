/** How long a run is, and whether it may become longer. */
import type { Settings, TrainedSettings } from './settings.js';

/** Optimizer steps of a whole run. */
export function optimizerSteps({ algorithm, num_iterations }: TrainedSettings): number {
  return num_iterations * (algorithm.type === 'grpo' ? algorithm.inner_epochs : 1);
}

/** Whether a raised num_iterations leaves what the iterations before it come to as it is. */
export function growable(settings: Settings): boolean {
  // What another trainer does with the number is not known, but it is told the same one at every resume.
  if (settings.task === 'external') return true;
  // Exhaustive on purpose: another schedule has to say whether it depends on the number of iterations.
  const { schedule, decay_steps } = settings.optimizer;
  const independent: Record<TrainedSettings['optimizer']['schedule'], boolean> = {
    constant: true,
    linear: decay_steps !== null,
    cosine: decay_steps !== null,
  };
  return independent[schedule];
}
