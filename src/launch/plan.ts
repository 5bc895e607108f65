/** The plan of an experiment: the state and the needs of each run. Starts nothing. */
import type { Cell, Experiment } from '../config/experiment/load.js';
import { isTrainable } from '../config/recipes.js';
import { must } from '../core/errors.js';
import { readMetrics } from '../run/metrics.js';
import { RunPaths } from '../run/paths.js';
import { readRecord } from '../run/record.js';
import { isDone, readState, type RunStateName } from '../run/state.js';
import { deviceKind, type DeviceKind, type Devices } from './machine/devices.js';
import { machineMemory, type Memory } from './machine/memory.js';
import type { MemoryModel } from './machine/estimate.js';
import { describeParts } from './machine/placement.js';
import { exitCodeOf } from './preflight/obstacle.js';
import { Preflight } from './preflight/preflight.js';
import { planJobs, roomFor, sizeJobs, type TightMemory } from './sweep/plan.js';
import { refusedChanges, runFolders } from './sweep/run_folders.js';
import { judgeQuestions, type JudgeQuestions } from './judge_questions.js';
import { missingModels } from './models/wanted.js';

export interface PlannedRun {
  readonly run_name: string;
  readonly axes: Readonly<Record<string, string>>;
  readonly hash: string;
  /**
   * `new`, `changed` (its directory has other settings), `extended` (it finished with fewer iterations than its settings have, and a sweep trains the
   * rest), or the state in its directory.
   */
  readonly state: RunStateName | 'new' | 'changed' | 'extended';
  readonly parents: readonly string[];
  /** Processes, each with its own device: a GPU, or a share of the cores. */
  readonly devices: number;
  readonly device: DeviceKind;
  /** Estimated bytes of one process. Null if the settings do not determine it. */
  readonly memory_bytes: number | null;
  /** The GPU of each part, in words. Null without launch.placement. */
  readonly placement: string | null;
  /** Advice if it does not fit. Null if it fits. */
  readonly memory_advice: string | null;
  readonly differs: Readonly<Record<string, unknown>>;
  /** Its judge questions. Null if it has no judge. */
  readonly judge_questions: JudgeQuestions | null;
  /** Estimated seconds left, from finished runs of the same kind. 0 when done, null if there are none. */
  readonly seconds_left: number | null;
}

export interface ExperimentPlan {
  readonly experiment: string;
  readonly cells: readonly PlannedRun[];
  readonly parents: readonly PlannedRun[];
  /** The number of runs that a sweep starts at once on the CPU if memory is the limit. Otherwise null. */
  readonly at_once: TightMemory | null;
  /** Models of the Hub to fetch before they start. */
  readonly downloads: readonly string[];
  /** Problems that prevent runs on this machine. */
  readonly obstacles: readonly { readonly run: string; readonly message: string }[];
  /** 0 if nothing blocks the runs. See `exitCodeOf`. */
  readonly exit_code: number;
  /** Warnings about runs that nothing prevents. */
  readonly warnings: readonly string[];
}

/** Reads the run directories of all runs. Raises RunError for one that cannot be read. */
export async function planExperiment(
  experiment: Experiment,
  devices: Devices,
  machine: Memory = machineMemory(),
): Promise<ExperimentPlan> {
  const runs = new Map([...experiment.cells, ...experiment.parents].map((cell) => [cell.run_name, cell]));
  const folderStates = new Map([...runs].map(([name, cell]) => [name, readFolderState(cell)]));
  const speed = secondsPerIteration([...runs.values()], folderStates);
  const configs = [...runs.values()].map(({ config }) => config);
  const checked = await new Preflight().check(configs, { devices: () => devices, machine, claimed: [] });
  const memory = must(checked.memory(), 'the memory of known devices');
  const planned = (cell: Cell): PlannedRun => {
    const { settings, resultHash } = cell.config;
    const { state, iteration } = folderStates.get(cell.run_name) ?? { state: 'new', iteration: 0 };
    const { device, processes, bytes, verdict, placed } = memory(settings);
    const perIteration = speed.get(kindOf(cell));
    const left = Math.max(0, settings.num_iterations - (state === 'changed' ? 0 : iteration));
    const done = state === 'finished' ? settings.num_iterations : state === 'changed' ? 0 : iteration;
    const seconds = perIteration === undefined ? null : perIteration * left;
    return {
      run_name: cell.run_name,
      axes: cell.axes,
      hash: resultHash,
      state,
      parents: cell.parents,
      devices: processes,
      device,
      memory_bytes: bytes,
      placement: placed === null ? null : (placed.note ?? describeParts(placed.devices)),
      memory_advice: verdict()?.advice ?? null,
      differs: cell.differs,
      judge_questions: judgeQuestions(settings, done),
      seconds_left: state === 'finished' ? 0 : seconds,
    };
  };
  return {
    experiment: experiment.name,
    cells: experiment.cells.map(planned),
    parents: experiment.parents.map(planned),
    at_once: atOnce(experiment, devices, machine.free, memory),
    downloads: [...new Set([...runs.values()].flatMap(({ config }) => missingModels(config.settings)))],
    obstacles: checked.obstacles.map(({ run, error }) => ({ run, message: error.toText() })),
    exit_code: exitCodeOf(checked.obstacles),
    warnings: checked.warnings(),
  };
}

/**
 * The memory limit of a sweep's runs on the CPU. Runs on GPUs have one each. A config without axes trains its runs one after another.
 */
function atOnce(experiment: Experiment, devices: Devices, freeBytes: number, memory: MemoryModel): TightMemory | null {
  if (experiment.cells.every(({ axes }) => Object.keys(axes).length === 0)) return null;
  const isOnCpu = ({ config }: Cell): boolean => deviceKind(config.settings, devices) === 'cpu';
  const cells = experiment.cells.filter(isOnCpu);
  const parents = experiment.parents.filter(isOnCpu);
  const names = new Set([...cells, ...parents].map(({ run_name }) => run_name));
  const among = (all: readonly Cell[]): Cell[] =>
    all.map((cell) => ({ ...cell, parents: cell.parents.filter((name) => names.has(name)) }));
  const matrix = { name: experiment.name, cells: among(cells), parents: among(parents) };
  const jobs = sizeJobs(planJobs(matrix, devices), memory);
  return roomFor({ jobs, devices, maxParallel: null, freeBytes, world: runFolders }).tight;
}

interface FolderState {
  readonly state: PlannedRun['state'];
  readonly iteration: number;
}

function readFolderState({ config, run_name }: Cell): FolderState {
  const paths = new RunPaths(config.settings.base_exp_dir, run_name);
  const state = readState(paths);
  if (state === null) return { state: 'new', iteration: 0 };
  const record = readRecord(paths);
  const { iteration } = state;
  if (record !== null && refusedChanges(record, config).length > 0) return { state: 'changed', iteration };
  const goesOn = state.state === 'finished' && !isDone(state, config.settings.num_iterations);
  return { state: goesOn ? 'extended' : state.state, iteration };
}

/** Runs with the same recipe and algorithm are assumed to be equally fast. */
function kindOf({ config: { settings } }: Cell): string {
  return isTrainable(settings) ? `${settings.task} ${settings.algorithm.type}` : settings.task;
}

/** The states of runs whose times count for estimates. */
const MEASURED: ReadonlySet<PlannedRun['state'] | undefined> = new Set(['finished', 'extended']);

function secondsPerIteration(
  cells: readonly Cell[],
  folderStates: ReadonlyMap<string, FolderState>,
): Map<string, number> {
  const times = new Map<string, number[]>();
  for (const cell of cells) {
    if (!MEASURED.has(folderStates.get(cell.run_name)?.state)) continue;
    const lines = readMetrics(new RunPaths(cell.config.settings.base_exp_dir, cell.run_name));
    const seconds = lines.flatMap(({ metrics }) => metrics['time/total'] ?? []).filter(Number.isFinite);
    if (seconds.length > 0) times.set(kindOf(cell), [...(times.get(kindOf(cell)) ?? []), ...seconds]);
  }
  return new Map([...times].map(([kind, all]) => [kind, all.reduce((sum, one) => sum + one, 0) / all.length]));
}
