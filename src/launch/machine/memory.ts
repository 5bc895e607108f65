/** The memory of a machine, and whether a need fits. */
import { readFileSync } from 'node:fs';
import { freemem, totalmem } from 'node:os';
import { join } from 'node:path';
import type { Gpu } from './devices.js';
import { placedParts, type PlacedPart, type PlacedParts } from './placement.js';

/** A recipe's estimate is right within this factor. A need beyond it certainly does not fit. */
const ESTIMATE_FACTOR = 2;

/** Bytes available without swapping, on Linux including reclaimable caches. */
export function availableMemory(): number {
  if (process.platform !== 'linux') return freemem();
  const match = /^MemAvailable:\s+(\d+) kB/m.exec(readFileSync('/proc/meminfo', 'utf8'));
  return match === null ? freemem() : Number(match[1]) * 1024;
}

/** Memory of a machine, or of this process's control group, in bytes. */
export interface Memory {
  readonly free: number;
  readonly total: number;
}

export function machineMemory(): Memory {
  // 0 if no limit is known.
  const limit = process.constrainedMemory() || Infinity;
  // The usage of the group includes cached files, which can be reclaimed.
  const left = process.availableMemory() + cachedInGroup();
  return { free: Math.min(availableMemory(), limit, left), total: Math.min(totalmem(), limit) };
}

/**
 * Bytes of cached files in this process's control group, which allocations can reclaim. 0 if that cannot be read.
 * @param root of the file system
 */
export function cachedInGroup(root = '/'): number {
  const groups = textOrEmpty(join(root, 'proc/self/cgroup'));
  const folders = [...groups.matchAll(/^\d+:(memory)?:(.*)$/gm)].flatMap(([, controller = '', path]) => {
    const mounted = join(root, 'sys/fs/cgroup', controller);
    // In a container the group's own folder may be mounted as the root.
    return [join(mounted, path), mounted];
  });
  for (const folder of folders) {
    const found = /^inactive_file (\d+)$/m.exec(textOrEmpty(join(folder, 'memory.stat')));
    if (found !== null) return Number(found[1]);
  }
  return 0;
}

function textOrEmpty(file: string): string {
  try {
    return readFileSync(file, 'utf8');
  } catch {
    return '';
  }
}

export interface MemoryVerdict {
  readonly fits: boolean;
  /** Whether it would not fit with all memory free, even if the estimate is too high by its factor. */
  readonly neverFits: boolean;
  /** Bytes that all processes in this memory need together. */
  readonly neededBytes: number;
  /** Free and total bytes where the run would be placed. */
  readonly freeBytes: number;
  readonly totalBytes: number;
  /** Advice if it does not fit. */
  readonly advice: string | null;
}

/** Whether processes fit that need this many bytes each: one on each GPU, or all in the machine's memory. */
export function memoryVerdict(
  bytes: number,
  processes: number,
  gpus: readonly Gpu[],
  machine: Memory = machineMemory(),
  less?: string,
): MemoryVerdict {
  const onGpus = gpus.flatMap(({ memoryBytes: total, usedBytes }) =>
    total === null ? [] : [{ total, free: total - (usedBytes ?? 0) }],
  );
  return verdictOf(bytes, processes, onGpus, machine, less);
}

/** Whether the parts of one process fit on their GPUs within a share of their memory. The verdict of the fullest GPU. */
export function placedVerdict(
  bytes: Readonly<Record<PlacedPart, number>>,
  { devices }: PlacedParts,
  limit: number,
  gpus: readonly Gpu[],
  machine: Memory,
): MemoryVerdict {
  const verdicts = gpus.flatMap((gpu) => {
    const here = placedParts.filter((part) => devices[part] === gpu.index);
    const { memoryBytes, usedBytes } = gpu;
    if (here.length === 0 || memoryBytes === null) return [];
    const total = limit * memoryBytes;
    const place = { total, free: Math.min(total, memoryBytes - (usedBytes ?? 0)) };
    const needed = here.reduce((sum, part) => sum + bytes[part], 0);
    const verdict = verdictOf(needed, 1, [place], machine);
    const advice = verdict.fits
      ? null
      : `${here.join(' and ')} on GPU ${gpu.index}: place them apart in launch.placement, or lower optimizer.per_device_batch_size`;
    return [{ ...verdict, advice }];
  });
  const all = placedParts.reduce((sum, part) => sum + bytes[part], 0);
  const [fullest] = verdicts.sort((a, b) => b.neededBytes / b.freeBytes - a.neededBytes / a.freeBytes);
  return fullest ?? verdictOf(all, 1, [], machine);
}

const SMALLER_BATCH = 'lower optimizer.per_device_batch_size';

/** @param onGpus empty for the machine's main memory. */
function verdictOf(
  bytes: number,
  processes: number,
  onGpus: readonly Memory[],
  machine: Memory,
  less = SMALLER_BATCH,
): MemoryVerdict {
  const places = onGpus.length > 0 ? onGpus : [machine];
  const [freeBytes, totalBytes] = [
    Math.min(...places.map(({ free }) => free)),
    Math.min(...places.map(({ total }) => total)),
  ];
  const neededBytes = onGpus.length > 0 ? bytes : bytes * processes;
  const fits = neededBytes <= freeBytes;
  const advice = fits ? null : less;
  return { fits, neverFits: neededBytes > ESTIMATE_FACTOR * totalBytes, neededBytes, freeBytes, totalBytes, advice };
}
