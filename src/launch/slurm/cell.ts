/** What a task of a job array starts with: its cell, and the devices that Slurm gave it. */
import { readFileSync } from 'node:fs';
import type { LoadedConfig } from '../../config/load.js';
import type { LaunchSettings } from '../../schema/launch.js';
import { RunError, UsageError } from '../../core/errors.js';

/** Reads one line of a file of cells. Raises RunError where there is none, UsageError for a wrong index. */
export function readCell(file: string, index: string): LoadedConfig {
  let lines: string[];
  try {
    lines = readFileSync(file, 'utf8').split('\n').slice(0, -1);
  } catch (cause) {
    throw new RunError('cannot read the file of cells', {
      where: file,
      next: 'It lies on a disk that every node has to see; submit again where it was removed.',
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

/** The GPUs and cores of this task's allocation; undefined where Slurm names GPUs by something else than their index. */
export function slurmPlacement(launch: LaunchSettings, env: NodeJS.ProcessEnv): SlurmPlacement | undefined {
  const visible = env['CUDA_VISIBLE_DEVICES'] ?? '';
  const names = visible === '' ? [] : visible.split(',');
  if (names.some((name) => !/^\d+$/.test(name))) return undefined;
  const cores = Number(env['SLURM_CPUS_ON_NODE'] ?? env['SLURM_CPUS_PER_TASK'] ?? 0);
  const processes = launch.processes === 'auto' ? Math.max(1, names.length) : launch.processes;
  return { devices: names.map(Number), threads: Math.floor(cores / processes) };
}
