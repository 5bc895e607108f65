/** How much memory there is, and whether what a run is estimated to need fits. */
import { readFileSync } from 'node:fs';
import { freemem } from 'node:os';
import type { Gpu } from './devices.js';

/** Bytes that can be had without swapping; on Linux with what caches would give back. */
export function availableMemory(): number {
  if (process.platform !== 'linux') return freemem();
  const match = /^MemAvailable:\s+(\d+) kB/m.exec(readFileSync('/proc/meminfo', 'utf8'));
  return match === null ? freemem() : Number(match[1]) * 1024;
}

export interface MemoryVerdict {
  readonly fits: boolean;
  /** What is free, in bytes, where the run would be placed. */
  readonly freeBytes: number;
  /** What to do when it does not fit. */
  readonly advice: string | null;
}

/** Whether processes that need so many bytes each fit: one on each GPU, or all in the machine's `free` bytes. */
export function memoryVerdict(
  bytes: number,
  processes: number,
  gpus: readonly Gpu[],
  free: number = availableMemory(),
): MemoryVerdict {
  const onGpus = gpus.flatMap(({ memoryBytes: all, usedBytes }) => (all === null ? [] : [all - (usedBytes ?? 0)]));
  const freeBytes = onGpus.length > 0 ? Math.min(...onGpus) : free;
  const needed = onGpus.length > 0 ? bytes : bytes * processes;
  const fits = needed <= freeBytes;
  const advice = fits
    ? null
    : 'lower optimizer.per_device_batch_size or policy.model_context_size, or launch.processes';
  return { fits, freeBytes, advice };
}
