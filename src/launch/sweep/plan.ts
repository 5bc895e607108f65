/** Plans the jobs of a sweep: its runs, their order, and the number of processes of each. */
import type { LoadedConfig } from '../../config/load.js';
import { InternalError, UsageError } from '../../core/errors.js';
import {
  deviceKind,
  gibibytes,
  processesOf,
  takesMemoryHere,
  type DeviceKind,
  type Devices,
} from '../machine/devices.js';
import { refusePlacedParts } from '../machine/placement.js';
import type { Job, RunFolderState } from './schedule.js';
import { mainMemory, type MemoryModel } from '../machine/estimate.js';

/** A run of an experiment: a cell, or a parent of cells. */
export interface SweepRun {
  readonly run_name: string;
  readonly axes: Readonly<Record<string, string>>;
  readonly config: LoadedConfig;
  /** Names of its parents. */
  readonly parents: readonly string[];
}

export interface SweepMatrix {
  readonly name: string;
  readonly cells: readonly SweepRun[];
  /** Ancestors of cells that are not cells themselves. */
  readonly parents: readonly SweepRun[];
}

/** A job and the settings needed to run it. */
export interface PlannedJob extends Job {
  readonly config: LoadedConfig;
  readonly axes: Readonly<Record<string, string>>;
  /** The kind of slot for each of its processes. */
  readonly device: DeviceKind;
}

/** A job and its share of this machine's memory. */
export interface SizedJob extends PlannedJob {
  /** Estimated bytes of all its processes. 0 if unknown, or if it computes on a GPU or another machine. */
  readonly bytes: number;
}

/**
 * The chosen cells, each after its parents. A parent of several cells is listed once. Raises ConfigError for a run that
 * chooses its GPUs itself.
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
      config: run.config,
      axes: run.axes,
      device,
    });
  };
  for (const cell of matrix.cells) if (choose(cell)) visit(cell.run_name);
  return [...jobs.values()];
}

/**
 * Returns a matcher of run names. A pattern with `*` or `?` matches the whole name like a shell, any other pattern a
 * substring.
 */
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

/** Adds each job's memory on this machine. */
export function sizeJobs(jobs: readonly PlannedJob[], memory: MemoryModel): SizedJob[] {
  return jobs.map((job) => {
    const { settings } = job.config;
    return { ...job, bytes: takesMemoryHere(settings) ? mainMemory(memory(settings)) : 0 };
  });
}

/** A sweep and its machine. */
export interface SweepPlace {
  readonly jobs: readonly SizedJob[];
  readonly devices: Pick<Devices, 'cpus'>;
  /** Maximum number of runs at once. Null for as many as fit. */
  readonly maxParallel: number | null;
  /** Bytes of free memory before anything starts. */
  readonly freeBytes: number;
  readonly world: { inspect(config: LoadedConfig): RunFolderState };
}

/** Describes too little memory for the number of runs that cores or --max-parallel would start at once. */
export interface TightMemory {
  /** Maximum number of runs at once. */
  readonly most: number;
  /** Estimated bytes of the smallest run. */
  readonly run_bytes: number;
  readonly free_bytes: number;
}

/** Cores and memory for runs. */
export interface Room {
  /** Number of slots on the cores. */
  readonly cpuSlots: number;
  /** Bytes of memory for all runs together. */
  readonly memoryBytes: number;
  /** Bytes of the smallest run on the CPU. 0 if a run's size is unknown. */
  readonly leastBytes: number;
  /** Null if memory is large enough for runs of the smallest size. */
  readonly tight: TightMemory | null;
}

/**
 * Room for runs. Without --max-parallel, the estimates of all runs at once must fit into free memory, except that a
 * single run may always start.
 * There are at most as many slots as runs of the smallest size fit, so that a lone run gets all cores.
 */
export function roomFor({ jobs, devices, maxParallel, freeBytes, world }: SweepPlace): Room {
  const cores = coreSlots(jobs, devices, maxParallel);
  const memoryBytes = maxParallel === null ? freeBytes : Number.POSITIVE_INFINITY;
  const open = jobs.filter(({ device, config }) => device === 'cpu' && !DONE.has(world.inspect(config).kind));
  const leastBytes = Math.min(...open.map(({ bytes }) => bytes));
  const all = { cpuSlots: cores, memoryBytes, leastBytes, tight: null };
  if (open.length === 0 || leastBytes === 0) return all;
  const fit = Math.max(1, Math.floor(freeBytes / leastBytes));
  const processes = Math.max(...open.map((job) => job.processes));
  const cells = open.filter(({ kind }) => kind === 'cell').length;
  const wanted = Math.min(
    Math.max(cells, open.length - cells),
    maxParallel ?? Math.max(1, Math.floor(devices.cpus / processes)),
  );
  if (wanted <= fit) return all;
  const tight = { most: maxParallel === null ? fit : wanted, run_bytes: leastBytes, free_bytes: freeBytes };
  return { ...all, cpuSlots: maxParallel === null ? Math.min(cores, fit * processes) : cores, tight };
}

/** States of runs that will not start. */
const DONE: ReadonlySet<RunFolderState['kind']> = new Set(['finished', 'refused']);

function coreSlots(jobs: readonly SizedJob[], devices: Pick<Devices, 'cpus'>, maxParallel: number | null): number {
  const sizes = jobs.filter(({ device }) => device === 'cpu').map(({ processes }) => processes);
  const all = sizes.reduce((sum, processes) => sum + processes, 0);
  const atOnce = maxParallel === null ? devices.cpus : maxParallel * Math.max(1, ...sizes);
  return Math.max(1, Math.min(atOnce, all));
}

/** The sentence that memory limits the number of runs at once. */
export function fewerAtOnce({ most, run_bytes, free_bytes }: TightMemory): string {
  return `at most ${most} ${most === 1 ? 'run' : 'runs'} at once: a run is estimated to need ${gibibytes(run_bytes)} of memory, and ${gibibytes(free_bytes)} are free; --max-parallel starts as many as it says`;
}

/** The sentence that the runs of --max-parallel may not fit. */
export function tooManyAtOnce({ most, run_bytes, free_bytes }: TightMemory): string {
  return `--max-parallel lets ${most} runs go at once, each is estimated to need ${gibibytes(run_bytes)} of memory or more, and ${gibibytes(free_bytes)} are free: lower it, or leave it out to start as many as fit`;
}
