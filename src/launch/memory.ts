/** Whether the memory that a run is estimated to need is there. */
import { freemem } from 'node:os';
import type { Gpu } from './devices.js';

export interface MemoryVerdict {
  readonly fits: boolean;
  /** What is free, in bytes, where the run would be placed. */
  readonly freeBytes: number;
  /** What to do when it does not fit. */
  readonly advice: string | null;
}

/** Whether processes that need so many bytes each fit: one on each GPU, or all in the machine's free memory. */
export function memoryVerdict(bytes: number, processes: number, gpus: readonly Gpu[]): MemoryVerdict {
  const onGpus = gpus.flatMap(({ memoryBytes: all, usedBytes }) => (all === null ? [] : [all - (usedBytes ?? 0)]));
  const freeBytes = onGpus.length > 0 ? Math.min(...onGpus) : freemem();
  const needed = onGpus.length > 0 ? bytes : bytes * processes;
  const fits = needed <= freeBytes;
  const advice = fits
    ? null
    : 'lower optimizer.per_device_batch_size or policy.model_context_size, or launch.processes';
  return { fits, freeBytes, advice };
}
