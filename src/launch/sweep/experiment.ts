/** Sweeps an experiment, from its cells to its result table. */
import { join, resolve } from 'node:path';
import type { Cell, Experiment } from '../../config/experiment/load.js';
import { ConfigError, must, RunError } from '../../core/errors.js';
import { writeFileAtomic } from '../../core/files.js';
import { writeExperiment, type ExperimentRecord, type RecordedRun } from '../../run/find.js';
import { encodeLine } from '../../run/journal.js';
import { RunPaths } from '../../run/paths.js';
import { readRecord } from '../../run/record.js';
import { promptsOf } from '../../run/report/measures.js';
import { readRun, type RunReport } from '../../run/report/read.js';
import { resultsMarkdown, tabulate, type Results } from '../../run/report/results.js';
import type { ReadSettings } from '../../core/schema/mark.js';
import { getPath } from '../../core/schema/walk.js';
import { detectDevices, DeviceSlots, type Devices } from '../machine/devices.js';
import { machineMemory } from '../machine/memory.js';
import type { MemoryModel } from '../machine/estimate.js';
import { readMeasure } from '../../rewards/score/identity.js';
import { ownExperiment } from './lock.js';
import { measureFinished } from './measure.js';
import {
  fewerAtOnce,
  matcherOf,
  planJobs,
  requireChosen,
  roomFor,
  sizeJobs,
  tooManyAtOnce,
  type PlannedJob,
  type SizedJob,
  type SweepRun,
} from './plan.js';
import type { Phase, RunFolderState, Schedule } from './schedule.js';
import { runSweep, type Runner, type SweepView } from './sweep.js';
import { inspect, runFolders } from './run_folders.js';

export interface SweepChoice {
  /** A pattern for the cells' names. Null means all of them. */
  readonly only: string | null;
  /** Only cells whose last attempt, or a parent's, failed or was interrupted. */
  readonly failed: boolean;
}

export interface SweepLimits {
  /** Maximum number of runs at once. Null for as many as fit. */
  readonly maxParallel: number | null;
  readonly retries: number;
  readonly failFast: boolean;
}

/** A planned sweep, to be shown or started. */
export interface PreparedSweep {
  readonly experiment: Experiment;
  readonly jobs: readonly PlannedJob[];
  readonly limits: SweepLimits;
  readonly devices: Devices;
  readonly baseExpDir: string;
}

/** The outcome of one run. */
export interface RunOutcome {
  readonly run_name: string;
  readonly state: Phase;
  readonly reason: string | null;
}

export interface SweepOutcome {
  readonly runs: readonly RunOutcome[];
  readonly results: Results;
  /**
   * Path of the written table without its extension. Null if nothing was written, because every cell's folder has other
   * settings.
   */
  readonly resultsFile: string | null;
  /** Whether someone requested the end. */
  readonly stopped: boolean;
}

/** The cells that a sweep should run. Raises UsageError when a pattern matches none. */
export function chooseCells(experiment: Experiment, choice: SweepChoice): SweepRun[] {
  const named = choice.only === null ? experiment.cells : experiment.cells.filter(matcherOf(choice.only));
  if (choice.only !== null) requireChosen(named, experiment, choice.only);
  return choice.failed ? named.filter(failedIn(experiment)) : [...named];
}

/**
 * Chooses the runs and plans their placement. Raises UsageError when a pattern matches nothing, ConfigError for a run
 * that does not fit even on the empty machine.
 */
export function prepareSweep(experiment: Experiment, choice: SweepChoice, limits: SweepLimits): PreparedSweep {
  const devices = detectDevices();
  const chosen = new Set(chooseCells(experiment, choice).map((cell) => cell.run_name));
  const jobs = planJobs(experiment, devices, (cell) => chosen.has(cell.run_name));
  const baseExpDir = must(experiment.cells[0], 'the first cell').config.settings.base_exp_dir;
  const slots = new DeviceSlots(devices, commonDevices(experiment, jobs, devices));
  for (const { processes, device } of jobs) {
    const placement = slots.tryAcquire(processes, device);
    if (placement !== null) slots.release(placement);
  }
  return { experiment, jobs, limits, devices, baseExpDir };
}

/** The record of an experiment: its runs, and which folders have other settings. */
export function recordOf(experiment: Experiment): Omit<ExperimentRecord, 'format'> {
  const recorded = ({ run_name, axes, parents, differs, config }: Cell): RecordedRun => {
    const found = inspect(config);
    const refused = found.kind === 'refused' ? found.reason : null;
    return { run_name, axes: { ...axes }, parents: [...parents], differs: { ...differs }, refused };
  };
  return {
    experiment: experiment.name,
    file: resolve(experiment.file),
    baseline: experiment.baseline === null ? null : { ...experiment.baseline },
    base_axis: experiment.baseAxis,
    ...(experiment.baseFile === null ? {} : { base_file: experiment.baseFile }),
    ...(experiment.measure.length === 0 ? {} : { measure: experiment.measure.map((term) => ({ ...term })) }),
    cells: experiment.cells.map(recorded),
    parents: experiment.parents.map(recorded),
  };
}

/**
 * Runs the sweep to its end, or until `stop` is aborted, and writes the result table. Raises RunError when another
 * scheduler holds the experiment.
 */
export async function sweep(
  prepared: PreparedSweep,
  runner: Runner,
  view: SweepView,
  stop: AbortSignal,
  memory: MemoryModel,
): Promise<SweepOutcome> {
  const { experiment, limits, baseExpDir } = prepared;
  const { jobs, slots, remark } = makeRoom(prepared, memory);
  const owned = ownExperiment(baseExpDir, experiment.name);
  const stops = AbortSignal.any([stop, owned.stop, owned.lost]);
  try {
    const record = recordOf(experiment);
    // The recorded metrics are of cells with other settings.
    const isOther = record.cells.every(({ refused }) => refused !== null);
    if (isOther) view.remark(OTHER_CELLS);
    else writeExperiment(baseExpDir, record);
    if (remark !== null) view.remark(remark);
    const schedule = await runSweep(
      { jobs, ...limits },
      {
        runner,
        slots,
        world: runFolders,
        view,
        stop: stops,
        kill: owned.kill,
      },
    );
    owned.lost.throwIfAborted();
    await measureFinished(experiment, (sentence) => view.remark(sentence), stops);
    const results = collectResults(experiment, schedule);
    const resultsFile = isOther ? null : writeResults(results, baseExpDir);
    return { runs: outcomes(schedule), results, resultsFile, stopped: stops.aborted };
  } finally {
    owned.release();
  }
}

const OTHER_CELLS =
  "warning: no cell's folder is of these settings, so the experiment's record and results stay as they are: sweep it as before, with the same --with and --set, or by another name";

/**
 * The memory and cores for a sweep's runs, with remarks about them.
 * Models of the Hub must be downloaded, because their sizes count. Servers must be running, because their memory is not
 * free.
 */
function makeRoom(
  { experiment, jobs: planned, limits, devices }: PreparedSweep,
  memory: MemoryModel,
): {
  readonly jobs: readonly SizedJob[];
  readonly slots: DeviceSlots;
  readonly remark: string | null;
} {
  const jobs = sizeJobs(planned, memory);
  const allowed = commonDevices(experiment, planned, devices);
  const { maxParallel } = limits;
  const { cpuSlots, memoryBytes, leastBytes, tight } = roomFor({
    jobs,
    devices,
    maxParallel,
    freeBytes: machineMemory().free,
    world: runFolders,
  });
  const message = (): string | null => {
    if (tight === null) return null;
    return maxParallel === null ? fewerAtOnce(tight) : `warning: ${tooManyAtOnce(tight)}`;
  };
  return { jobs, slots: new DeviceSlots(devices, allowed, cpuSlots, memoryBytes, leastBytes), remark: message() };
}

/** The GPUs that the runs may share. Null means all. Runs on the CPU do not restrict them. */
function commonDevices(
  experiment: Experiment,
  jobs: readonly PlannedJob[],
  devices: Devices,
): readonly number[] | null {
  const asking = jobs.filter(({ device, config }) =>
    devices.gpus.length > 0 ? device === 'gpu' : config.settings.launch.devices?.length !== 0,
  );
  const allowed = asking[0]?.config.settings.launch.devices ?? null;
  const other = asking.find((job) => JSON.stringify(job.config.settings.launch.devices) !== JSON.stringify(allowed));
  if (other === undefined) return allowed;
  throw new ConfigError(
    `runs of one sweep share out the same devices; found ${JSON.stringify(allowed)} and, in ${other.name}, ${JSON.stringify(other.config.settings.launch.devices)}`,
    {
      where: `${experiment.file}: launch.devices`,
      next: 'Set launch.devices in the base alone, or sweep the parts one by one with --only.',
    },
  );
}

/** Whether the last attempt of a cell, or of one of its parents, failed or was interrupted. */
function failedIn(experiment: Experiment): (run: SweepRun) => boolean {
  const runs = new Map([...experiment.parents, ...experiment.cells].map((run) => [run.run_name, run]));
  const known = new Map<string, boolean>();
  const failed = (run: SweepRun): boolean => {
    const before = known.get(run.run_name);
    if (before !== undefined) return before;
    const found = inspect(run.config);
    const answer =
      (found.kind === 'open' && (found.failed !== null || found.interrupted)) ||
      (found.kind !== 'finished' && run.parents.some((parent) => failed(must(runs.get(parent), parent))));
    known.set(run.run_name, answer);
    return answer;
  };
  return failed;
}

function outcomes(schedule: Schedule): RunOutcome[] {
  return schedule.jobs.map(({ name }) => ({
    run_name: name,
    state: schedule.phase(name),
    reason: schedule.reason(name),
  }));
}

/** Collects the results of all cells of the experiment, including cells outside this sweep. */
function collectResults(experiment: Experiment, schedule: Schedule): Results {
  const swept = new Set(schedule.jobs.map((job) => job.name));
  const runs = experiment.cells.map((cell) => ({
    run_name: cell.run_name,
    axes: cell.axes,
    outcome: swept.has(cell.run_name) ? schedule.phase(cell.run_name) : phaseOf(inspect(cell.config)),
    report: reportOf(cell),
    settings: settingsOf(cell),
    prompts: promptsOf(RunPaths.of(cell.config.settings)),
  }));
  return tabulate(experiment.name, runs, experiment.baseline, readMeasure(experiment.measure));
}

function phaseOf(found: RunFolderState): Phase {
  const phases: Readonly<Record<RunFolderState['kind'], Phase>> = {
    finished: 'finished',
    elsewhere: 'elsewhere',
    open: 'queued',
    refused: 'failed',
  };
  return found.kind === 'open' && found.failed !== null ? 'failed' : phases[found.kind];
}

/** Null for a run that has not begun or whose records cannot be read. The sweep has reported why. */
function reportOf(cell: SweepRun): RunReport | null {
  try {
    return readRun(RunPaths.of(cell.config.settings));
  } catch (error) {
    if (!(error instanceof RunError)) throw error;
    return null;
  }
}

/**
 * The recorded settings, which define how its evaluations were measured. The config's settings if the run has not begun
 * or its record cannot be read.
 */
function settingsOf({ config }: SweepRun): ReadSettings {
  let settings: object = config.settings;
  try {
    settings = readRecord(RunPaths.of(config.settings))?.settings ?? settings;
  } catch (error) {
    if (!(error instanceof RunError)) throw error;
  }
  return (path) => getPath(settings, path);
}

function writeResults(results: Results, baseExpDir: string): string {
  const file = join(baseExpDir, `${results.experiment}.results`);
  writeFileAtomic(`${file}.md`, resultsMarkdown(results));
  const plain = JSON.parse(encodeLine(results).line) as unknown;
  writeFileAtomic(`${file}.json`, `${JSON.stringify(plain, null, 2)}\n`);
  return file;
}
