/** Plans the jobs of a sweep: which runs, in which order, with how many processes each. */
import type { LoadedConfig } from '../../config/load.js';
import { InternalError, UsageError } from '../../core/errors.js';
import { deviceKind, processesOf } from '../machine/device_kind.js';
import type { DeviceKind, Devices } from '../machine/devices.js';
import { refusePlacedParts } from '../machine/placement.js';
import type { Job } from './schedule.js';

/** A run of an experiment: a cell, or a run that cells start from. */
export interface SweepRun {
  readonly run_name: string;
  readonly axes: Readonly<Record<string, string>>;
  readonly config: LoadedConfig;
  /** Names of the runs that it starts from. */
  readonly parents: readonly string[];
}

export interface SweepMatrix {
  readonly name: string;
  readonly cells: readonly SweepRun[];
  /** Runs that cells start from, transitively, and that are not cells themselves. */
  readonly parents: readonly SweepRun[];
}

/** A job with what is needed to run it. */
export interface PlannedJob extends Job {
  readonly config: LoadedConfig;
  readonly axes: Readonly<Record<string, string>>;
  /** The kind of slot that each of its processes takes. */
  readonly device: DeviceKind;
}

/** A job with what it takes of this machine's memory. */
export interface SizedJob extends PlannedJob {
  /** Estimated bytes of all its processes; 0 where that is not known, or it computes on a GPU or elsewhere. */
  readonly bytes: number;
}

/**
 * The chosen cells, each after the runs that it starts from, which are listed once. Raises ConfigError for a run that chooses its GPUs itself.
 */
export function planJobs(
  matrix: SweepMatrix,
  devices: Pick<Devices, 'gpus'>,
  choose: (run: SweepRun) => boolean = () => true,
): PlannedJob[] {
  const cells = new Map(matrix.cells.map((cell) => [cell.run_name, cell]));
  const parents = new Map(matrix.parents.map((parent) => [parent.run_name, parent]));
  const jobs = new Map<string, PlannedJob>();
  const visit = (name: string): void => {
    if (jobs.has(name)) return;
    const run = cells.get(name) ?? parents.get(name);
    if (run === undefined) throw new InternalError(`the experiment names ${name} as a parent, but does not hold it`);
    for (const parent of run.parents) visit(parent);
    const { settings } = run.config;
    const device = deviceKind(settings, devices);
    if (device === 'gpu') refusePlacedParts(name, settings.launch);
    jobs.set(name, {
      name,
      kind: cells.has(name) ? 'cell' : 'parent',
      parents: run.parents,
      processes: processesOf(settings, devices, device),
      numIterations: settings.num_iterations,
      config: run.config,
      axes: run.axes,
      device,
    });
  };
  for (const cell of matrix.cells) if (choose(cell)) visit(cell.run_name);
  return [...jobs.values()];
}

/** Matches names against a pattern: with `*` and `?` like a shell over the whole name, else as a substring. */
export function matcherOf(pattern: string): (run: Pick<SweepRun, 'run_name'>) => boolean {
  if (!/[*?]/.test(pattern)) return ({ run_name }) => run_name.includes(pattern);
  const source = pattern
    .replace(/[.+^${}()|[\]\\]/g, '\\$&')
    .replace(/\*/g, '.*')
    .replace(/\?/g, '.');
  const expression = new RegExp(`^${source}$`);
  return ({ run_name }) => expression.test(run_name);
}

/** Raises UsageError when a pattern matches no cell. */
export function requireChosen(chosen: readonly SweepRun[], matrix: SweepMatrix, pattern: string): void {
  if (chosen.length > 0) return;
  const some = matrix.cells.slice(0, 3).map((cell) => cell.run_name);
  throw new UsageError(`--only ${pattern}: no cell of ${matrix.name} has such a name`, {
    next: `Its ${matrix.cells.length} cells are called ${some.join(', ')}${matrix.cells.length > 3 ? ', …' : ''}; a pattern is a part of the name, or the whole with * and ?.`,
  });
}
