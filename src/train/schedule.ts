/** How the learning rate of a run goes, from its settings. */
import type { TrainedSettings } from '../config/settings.js';
import type { ScheduleOptions } from '../engines/onnx/optimizer.js';

/** What `learningRateAt` needs besides the number of the optimizer's step. */
export function scheduleOf({ optimizer, algorithm, num_iterations }: TrainedSettings): ScheduleOptions {
  const { schedule, learning_rate: learningRate, decay_steps, min_learning_rate_ratio } = optimizer;
  const warmup = { learningRate, warmupSteps: algorithm.warmup_steps };
  if (schedule === 'constant') return { ...warmup, schedule };
  const stepsPerIteration = algorithm.type === 'grpo' ? algorithm.inner_epochs : 1;
  return {
    ...warmup,
    schedule,
    totalSteps: decay_steps ?? num_iterations * stepsPerIteration,
    floor: learningRate * min_learning_rate_ratio,
  };
}
