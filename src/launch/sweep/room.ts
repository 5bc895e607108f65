/** How many runs of a sweep this machine has room for at once: by its cores, and by the memory that is free. */
import type { RunSettings } from '../../schema/run.js';
import { must } from '../../core/errors.js';
import { DeviceSlots, gibibytes, type Devices, type Placement } from '../machine/devices.js';
import { mainMemoryOf } from '../machine/memory.js';
import { takesMemoryHere } from '../preflight/checks.js';
import type { PlannedJob, SizedJob, SweepRun } from './plan.js';
import type { Schedule } from './schedule.js';
import { hasRoom, openSchedule, type RunWorld, type Slots } from './sweep.js';

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

/** What runs on the CPU take at one moment. */
export interface Moment {
  readonly runs: number;
  /** Of these, those whose estimate is known. */
  readonly sized: number;
  readonly processes: number;
  readonly bytes: number;
}

/** The order in which runs would start if all took equally long, and the moments between starts and ends. */
export function playSchedule(
  schedule: Schedule,
  jobs: readonly SizedJob[],
  slots: Slots,
  maxParallel: number | null,
): { readonly order: SizedJob[]; readonly moments: Moment[] } {
  const limit = maxParallel ?? Number.POSITIVE_INFINITY;
  const byName = new Map(jobs.map((job) => [job.name, job]));
  const kinds = new Set(jobs.map(({ device }) => device));
  const running: { readonly job: SizedJob; readonly placement: Placement }[] = [];
  const order: SizedJob[] = [];
  const moments: Moment[] = [];
  for (;;) {
    for (const { job } of schedule.startable()) {
      if (running.length >= limit || !hasRoom(slots, kinds)) break;
      const planned = must(byName.get(job.name), job.name);
      const placement = slots.tryAcquire(planned.processes, planned.device, planned.bytes);
      if (placement === null) continue;
      schedule.started(job.name);
      running.push({ job: planned, placement });
      order.push(planned);
    }
    const first = running[0];
    if (first === undefined) return { order, moments };
    moments.push(together(running.map(({ job }) => job)));
    running.shift();
    slots.release(first.placement);
    schedule.ended(first.job.name, { kind: 'finished' });
  }
}

function together(jobs: readonly SizedJob[]): Moment {
  const onCpu = jobs.filter(({ device }) => device === 'cpu');
  const sum = (of: (job: SizedJob) => number): number => onCpu.reduce((all, job) => all + of(job), 0);
  return {
    runs: onCpu.length,
    sized: onCpu.filter(({ bytes }) => bytes > 0).length,
    processes: sum(({ processes }) => processes),
    bytes: sum(({ bytes }) => bytes),
  };
}

/** A sweep and the machine that it runs on. */
export interface SweepPlace {
  readonly jobs: readonly SizedJob[];
  readonly devices: Devices;
  /** The GPUs that the runs may use; null for all. */
  readonly allowed: readonly number[] | null;
  /** Most runs at once; null for as many as there is room for. */
  readonly maxParallel: number | null;
  /** Bytes of memory that are free before anything starts. */
  readonly freeBytes: number;
  readonly world: RunWorld;
}

/** What memory is too small for, if as many runs start as the cores, or --max-parallel, would let. */
export interface TightMemory {
  /** Most runs at once: as many as fit, or as --max-parallel says. */
  readonly most: number;
  /** The runs of the moment that would take the most if memory were no limit, and their bytes. */
  readonly unbounded: number;
  readonly unbounded_bytes: number;
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
  /** Null where memory is large enough, whichever run on the CPU. */
  readonly tight: TightMemory | null;
}

/**
 * Where nobody says how many runs go at once, their estimates have to fit into the memory that is free, or a run has all of it. There are as many slots
 * as can be used at once, so that a lone run has all cores, and so has one beside which no other fits.
 */
export function roomFor({ jobs, devices, allowed, maxParallel, freeBytes, world }: SweepPlace): Room {
  const cores = coreSlots(jobs, devices, maxParallel);
  const memoryBytes = maxParallel === null ? freeBytes : Number.POSITIVE_INFINITY;
  const leastBytes = Math.min(...jobs.flatMap(({ device, bytes }) => (device === 'cpu' ? [bytes] : [])));
  const seen = inspectedOnce(world);
  const momentsOf = (memoryBytes: number): Moment[] => {
    const { schedule } = openSchedule({ jobs, retries: 0, failFast: false, halving: null }, seen);
    return playSchedule(schedule, jobs, new DeviceSlots(devices, allowed, cores, memoryBytes), maxParallel).moments;
  };
  const all = { cpuSlots: cores, memoryBytes, leastBytes, tight: null };
  // Nothing has to be played where all fit together.
  if (jobs.reduce((sum, { bytes }) => sum + bytes, 0) <= freeBytes) return all;
  const unbounded = momentsOf(Number.POSITIVE_INFINITY);
  // A run goes alone even if it does not fit, and one of unknown size beside any other.
  const crowded = unbounded.filter(({ sized, bytes }) => sized > 1 && bytes > freeBytes);
  if (crowded.length === 0) return all;
  const played = maxParallel === null ? momentsOf(freeBytes) : unbounded;
  const cpuSlots = Math.min(cores, Math.max(...played.map(({ processes }) => processes)));
  return {
    cpuSlots,
    memoryBytes,
    leastBytes,
    tight: tightOf(crowded, maxParallel === null ? played : null, freeBytes),
  };
}

/** @param fitting The moments that fit; null where runs start although they do not. */
function tightOf(
  crowded: readonly Moment[],
  fitting: readonly Moment[] | null,
  free_bytes: number,
): TightMemory | null {
  const most = fitting === null ? null : Math.max(...fitting.map(({ runs }) => runs));
  // Where as many go at once as fit, only the moments with more runs than that are held back.
  const [largest] = crowded.filter(({ runs }) => most === null || runs > most).sort((a, b) => b.bytes - a.bytes);
  if (largest === undefined) return null;
  return { most: most ?? largest.runs, unbounded: largest.runs, unbounded_bytes: largest.bytes, free_bytes };
}

function coreSlots(jobs: readonly SizedJob[], devices: Devices, maxParallel: number | null): number {
  const sizes = jobs.filter(({ device }) => device === 'cpu').map(({ processes }) => processes);
  const all = sizes.reduce((sum, processes) => sum + processes, 0);
  const atOnce = maxParallel === null ? devices.cpus : maxParallel * Math.max(1, ...sizes);
  return Math.max(1, Math.min(atOnce, all));
}

/** Run directories that are looked at once. */
function inspectedOnce(world: RunWorld): RunWorld {
  const found = new Map<unknown, ReturnType<RunWorld['inspect']>>();
  const inspect: RunWorld['inspect'] = (config) => {
    const state = found.get(config) ?? world.inspect(config);
    found.set(config, state);
    return state;
  };
  return { ...world, inspect };
}

/** That fewer runs go at once than the cores would take, in words. */
export function fewerAtOnce({ most, unbounded, unbounded_bytes, free_bytes }: TightMemory): string {
  return `at most ${most} ${most === 1 ? 'run' : 'runs'} at once, as many as fit by their estimates into the ${gibibytes(free_bytes)} of memory that are free (the ${unbounded} that the cores would take need ${gibibytes(unbounded_bytes)}); --max-parallel starts as many as it says`;
}

/** That the runs that --max-parallel lets start at once may not fit, in words. */
export function tooManyAtOnce({ most, unbounded_bytes, free_bytes }: TightMemory): string {
  return `the ${most} runs that --max-parallel lets go at once are estimated to need ${gibibytes(unbounded_bytes)} of memory together, and ${gibibytes(free_bytes)} are free: lower it, or leave it out, and as many go at once as fit`;
}
