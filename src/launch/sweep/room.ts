/** How many runs of a sweep this machine has room for at once: by its cores, and by the memory that is free. */
import type { RunSettings } from '../../schema/run.js';
import { gibibytes, type Devices } from '../machine/devices.js';
import { mainMemoryOf } from '../machine/memory.js';
import { takesMemoryHere } from '../preflight/checks.js';
import type { PlannedJob, SizedJob, SweepRun } from './plan.js';
import type { RunFolderState } from './schedule.js';
import type { RunWorld } from './sweep.js';

/**
 * The jobs with what each takes of this machine's memory, by its estimate. The models that they share are looked at once.
 * @param runs All runs that the jobs may start from.
 */
export function sizeJobs(
  jobs: readonly PlannedJob[],
  devices: Devices,
  runs: readonly Pick<SweepRun, 'config'>[] = jobs,
): SizedJob[] {
  const settings = runs.map(({ config }): [string, RunSettings] => [config.settings.run_name, config.settings]);
  const bytesOf = mainMemoryOf(new Map(settings), devices);
  return jobs.map((job) => ({
    ...job,
    bytes: takesMemoryHere(job.config.settings) ? bytesOf(job.config.settings) : 0,
  }));
}

/** A sweep and the machine that it runs on. */
export interface SweepPlace {
  readonly jobs: readonly SizedJob[];
  readonly devices: Pick<Devices, 'cpus'>;
  /** Most runs at once; null for as many as there is room for. */
  readonly maxParallel: number | null;
  /** Bytes of memory that are free before anything starts. */
  readonly freeBytes: number;
  readonly world: Pick<RunWorld, 'inspect'>;
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
const DONE: ReadonlySet<RunFolderState['kind']> = new Set(['finished', 'stopped', 'refused']);

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
