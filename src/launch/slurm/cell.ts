/**
 * Starts a task of a job array: reads its cell, takes its devices from Slurm, and waits for the lock of an earlier
 * attempt.
 */
import { readFileSync } from 'node:fs';
import type { LoadedConfig } from '../../config/load.js';
import type { LaunchSettings } from '../../config/schema/launch.js';
import { RunError, UsageError } from '../../core/errors.js';
import { lockProblem, readLock, STALE_AFTER_S, type LockWorld } from '../../run/claim/lock.js';
import type { RunPaths } from '../../run/paths.js';

/** Reads one line of a file of cells. Raises RunError when the file does not exist, UsageError for an invalid index. */
export function readCell(file: string, index: string): LoadedConfig {
  let lines: string[];
  try {
    lines = readFileSync(file, 'utf8').split('\n').slice(0, -1);
  } catch (cause) {
    throw new RunError('cannot read the file of cells', {
      where: file,
      next: 'Every node must be able to read its disk. If it was removed, submit again.',
      cause,
    });
  }
  const number = /^\d+$/.test(index) ? Number(index) : -1;
  const line = lines.at(number);
  if (number < 0 || line === undefined) {
    throw new UsageError(`found the index '${index}'; allowed: 0 to ${lines.length - 1}`, { where: file });
  }
  return JSON.parse(line) as LoadedConfig;
}

export interface SlurmPlacement {
  readonly devices: readonly number[];
  readonly threads: number;
}

/** The GPUs and cores of this task's allocation. Undefined if Slurm does not name GPUs by index. */
export function slurmPlacement(launch: LaunchSettings, env: NodeJS.ProcessEnv): SlurmPlacement | undefined {
  const visible = env['CUDA_VISIBLE_DEVICES'] ?? '';
  const names = visible === '' ? [] : visible.split(',');
  if (names.some((name) => !/^\d+$/.test(name))) return undefined;
  const cores = Number(env['SLURM_CPUS_ON_NODE'] ?? env['SLURM_CPUS_PER_TASK'] ?? 0);
  const processes = launch.processes === 'auto' ? Math.max(1, names.length) : launch.processes;
  return { devices: names.map(Number), threads: Math.floor(cores / processes) };
}

export interface StaleLockOptions {
  readonly sleep: (seconds: number) => Promise<void>;
  readonly say: (line: string) => void;
}

/**
 * Waits until a run's lock is free, can be taken over, or belongs to a process that may be alive. Claiming then reports
 * the rest.
 * A requeued job can start before the lock that it left on another host counts as stale. So it waits for earlier
 * attempts of the same job and for locks of ended jobs on other hosts: at most two minutes, until the heartbeat is
 * stale.
 */
export async function waitForStaleLock(paths: RunPaths, world: LockWorld, options: StaleLockOptions): Promise<void> {
  const deadline = world.nowMs() + (STALE_AFTER_S + 1) * 1000;
  for (let announced = false; world.nowMs() <= deadline; announced = true) {
    const held = readLock(paths, world);
    if (held === null || lockProblem(held, world) === null) return;
    const { slurm_job_id: job, host, ageS } = held;
    if (job === null) return;
    const ownEarlierAttempt = job === world.slurmJobId;
    if (!ownEarlierAttempt && (host === world.host || world.slurmJobEnded(job) !== true)) return;
    if (!announced) options.say(`job ${job} left its lock on ${host}: waiting until its process is gone for certain`);
    await options.sleep(host === world.host ? 1 : Math.min(10, Math.max(1, STALE_AFTER_S - ageS + 1)));
  }
}
