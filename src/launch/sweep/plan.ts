/** Plans the jobs of a sweep: which runs, in which order, with how many processes each. */
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

/** The jobs with the memory of this machine that each takes. */
export function sizeJobs(jobs: readonly PlannedJob[], memory: MemoryModel): SizedJob[] {
  return jobs.map((job) => {
    const { settings } = job.config;
    return { ...job, bytes: takesMemoryHere(settings) ? mainMemory(memory(settings)) : 0 };
  });
}

/** A sweep and the machine that it runs on. */
export interface SweepPlace {
  readonly jobs: readonly SizedJob[];
  readonly devices: Pick<Devices, 'cpus'>;
  /** Most runs at once; null for as many as there is room for. */
  readonly maxParallel: number | null;
  /** Bytes of memory that are free before anything starts. */
  readonly freeBytes: number;
  readonly world: { inspect(config: LoadedConfig): RunFolderState };
}

/** Memory for fewer runs than the cores, or --max-parallel, would let start at once. */
export interface TightMemory {
  /** Most runs at once. */
  readonly most: number;
  /** The estimate of the smallest run. */
  readonly run_bytes: number;
  readonly free_bytes: number;
}

/** What runs are given room from. */
export interface Room {
  /** Slots of the cores. */
  readonly cpuSlots: number;
  /** What they may take of the memory together. */
  readonly memoryBytes: number;
  /** What the smallest run on the CPU takes of it; 0 if one is of unknown size. */
  readonly leastBytes: number;
  /** Null where memory is large enough for runs of the smallest size. */
  readonly tight: TightMemory | null;
}

/**
 * Where nobody says how many runs go at once, their estimates have to fit into the memory that is free, or a run has all of it. There are no more slots
 * than runs of the smallest size fit, so that a lone run has all cores.
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

/** Runs that will not start. */
const DONE: ReadonlySet<RunFolderState['kind']> = new Set(['finished', 'refused']);

function coreSlots(jobs: readonly SizedJob[], devices: Pick<Devices, 'cpus'>, maxParallel: number | null): number {
  const sizes = jobs.filter(({ device }) => device === 'cpu').map(({ processes }) => processes);
  const all = sizes.reduce((sum, processes) => sum + processes, 0);
  const atOnce = maxParallel === null ? devices.cpus : maxParallel * Math.max(1, ...sizes);
  return Math.max(1, Math.min(atOnce, all));
}

/** That fewer runs go at once than the cores would take, in words. */
export function fewerAtOnce({ most, run_bytes, free_bytes }: TightMemory): string {
  return `at most ${most} ${most === 1 ? 'run' : 'runs'} at once: a run is estimated to need ${gibibytes(run_bytes)} of memory, and ${gibibytes(free_bytes)} are free; --max-parallel starts as many as it says`;
}

/** That the runs that --max-parallel lets start at once may not fit, in words. */
export function tooManyAtOnce({ most, run_bytes, free_bytes }: TightMemory): string {
  return `--max-parallel lets ${most} runs go at once, each is estimated to need ${gibibytes(run_bytes)} of memory or more, and ${gibibytes(free_bytes)} are free: lower it, or leave it out to start as many as fit`;
}
