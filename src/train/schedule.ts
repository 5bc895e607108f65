/** The learning-rate schedule of a run, from its settings. */
import { optimizerSteps } from '../config/hash.js';
import type { TrainedSettings } from '../schema/run.js';
import type { ScheduleOptions } from '../engines/onnx/optimizer.js';

/** What `learningRateAt` needs besides the number of the optimizer step. */
export function scheduleOf(settings: TrainedSettings): ScheduleOptions {
  const { optimizer, algorithm } = settings;
  const { schedule, learning_rate: learningRate, decay_steps, min_learning_rate_ratio } = optimizer;
  const warmup = { learningRate, warmupSteps: algorithm.warmup_steps };
  if (schedule === 'constant') return { ...warmup, schedule };
  return {
    ...warmup,
    schedule,
    totalSteps: decay_steps ?? optimizerSteps(settings),
    floor: learningRate * min_learning_rate_ratio,
  };
}
