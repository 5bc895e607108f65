/**
 * Records the machine's load during a run in `track/system.jsonl`: one line every few seconds, with the names that W&B
 * charts.
 */
import { execFile } from 'node:child_process';
import { appendFileSync, mkdirSync, readFileSync } from 'node:fs';
import { cpus, freemem, totalmem, type CpuInfo } from 'node:os';
import { promisify } from 'node:util';
import { sleep, systemClock, type Clock } from '../../core/clock.js';
import { diskError } from '../../core/files.js';
import type { RunPaths } from '../paths.js';

const EVERY_MS = 15_000;
const QUERY_MS = 5000;
const PAGE_BYTES = 4096;

/** One sample: seconds since 1970, and numbers by name. */
export type SystemSample = Readonly<Record<string, number>>;

export interface SystemOptions {
  readonly paths: RunPaths;
  /** The run's processes. */
  readonly pids: () => readonly number[];
  readonly clock?: Clock | undefined;
  readonly everyMs?: number | undefined;
  /** Returns the output of `nvidia-smi`. Null if there is none. */
  readonly queryGpus?: () => Promise<string | null>;
}

/** Samples the machine until `ending` is aborted. Raises RunError on a disk error. */
export async function sampleSystem(options: SystemOptions, ending: AbortSignal): Promise<void> {
  const { paths, pids, clock = systemClock, everyMs = EVERY_MS, queryGpus = nvidiaSmi } = options;
  let before = cpus();
  let hasGpus = true;
  while (!ending.aborted) {
    await sleep(clock, everyMs, ending);
    const now = cpus();
    const gpus: string | null = hasGpus ? await queryGpus() : null;
    hasGpus = gpus !== null;
    const sample: SystemSample = {
      at: Date.now() / 1000,
      cpu: busyPercent(before, now),
      memory_percent: tenth((100 * (totalmem() - freemem())) / totalmem()),
      'proc.memory.rssMB': tenth(pids().reduce((sum, pid) => sum + residentBytes(pid), 0) / 1e6),
      ...(gpus === null ? {} : gpuNumbers(gpus)),
    };
    before = now;
    append(paths, sample);
  }
}

function append(paths: RunPaths, sample: SystemSample): void {
  try {
    mkdirSync(paths.trackDir, { recursive: false });
  } catch (cause) {
    // A run directory that was removed must not be recreated.
    if ((cause as NodeJS.ErrnoException).code !== 'EEXIST') throw diskError(paths.trackDir, cause);
  }
  try {
    appendFileSync(paths.systemMetrics, `${JSON.stringify(sample)}\n`);
  } catch (cause) {
    throw diskError(paths.systemMetrics, cause);
  }
}

const FIELDS = {
  gpu: 'utilization.gpu',
  memory: 'utilization.memory',
  memoryUsedMB: 'memory.used',
  memoryTotalMB: 'memory.total',
  temp: 'temperature.gpu',
  powerWatts: 'power.draw',
} as const;

/** Null if the program is not installed or does not answer. */
async function nvidiaSmi(): Promise<string | null> {
  const fields = ['index', ...Object.values(FIELDS)].join(',');
  try {
    const args = [`--query-gpu=${fields}`, '--format=csv,noheader,nounits'];
    const { stdout } = await promisify(execFile)('nvidia-smi', args, { timeout: QUERY_MS });
    return stdout;
  } catch {
    return null;
  }
}

/** Numbers such as `gpu.0.temp` from the output of `nvidia-smi`. Leaves out values that are not numbers. */
export function gpuNumbers(printed: string): SystemSample {
  const numbers: Record<string, number> = {};
  for (const line of printed.split('\n')) {
    const [index, ...values] = line.split(',').map((word) => word.trim());
    if (!/^\d+$/.test(index)) continue;
    Object.keys(FIELDS).forEach((name, i) => {
      const value = Number(values[i]);
      if (values[i] !== undefined && values[i] !== '' && Number.isFinite(value)) {
        numbers[`gpu.${index}.${name}`] = value;
      }
    });
  }
  return numbers;
}

function busyPercent(before: readonly CpuInfo[], now: readonly CpuInfo[]): number {
  const sum = (all: readonly CpuInfo[], of: (times: CpuInfo['times']) => number): number =>
    all.reduce((total, { times }) => total + of(times), 0);
  const whole = ({ user, nice, sys, idle, irq }: CpuInfo['times']): number => user + nice + sys + idle + irq;
  const passed = sum(now, whole) - sum(before, whole);
  const idle = sum(now, (times) => times.idle) - sum(before, (times) => times.idle);
  return passed <= 0 ? 0 : tenth(100 * (1 - idle / passed));
}

/** 0 if the process has ended, or on systems without /proc. */
function residentBytes(pid: number): number {
  try {
    return Number(readFileSync(`/proc/${pid}/statm`, 'utf8').split(' ')[1]) * PAGE_BYTES;
  } catch {
    return 0;
  }
}

function tenth(value: number): number {
  return Math.round(value * 10) / 10;
}
