/** The devices of a machine and their assignment to runs: GPUs, or shares of the CPU cores. */
import { spawnSync } from 'node:child_process';
import { availableParallelism } from 'node:os';
import type { Environment } from '../../config/jsonnet.js';
import { cannotRunYet } from '../../config/models.js';
import type { LaunchSettings } from '../../config/schema/launch.js';
import { autoProvider, hasGpu, nvidiaFile, thisMachine, type Machine } from '../../compute/onnx/cuda.js';
import { ConfigError, InternalError, RunError } from '../../core/errors.js';
import { enginesOf, recipeOf } from '../../recipes/settings.js';
import { isTrainable } from '../../config/recipes.js';
import type { RunSettings } from '../../config/schema/run.js';
import type { ServeSettings } from '../../config/schema/sampler.js';
import { trainerServeOf } from '../../recipes/shared/tokens/rules.js';

export interface Gpu {
  /** The nvidia-smi index, as in `launch.devices`. */
  readonly index: number;
  readonly uuid: string;
  readonly name: string;
  /** Total memory. Null if the driver does not report it. */
  readonly memoryBytes: number | null;
  /** Memory used by any process. Null if the driver does not report it. */
  readonly usedBytes: number | null;
}

export interface Devices {
  /** Ascending by index. */
  readonly gpus: readonly Gpu[];
  /** Cores that this process may use. */
  readonly cpus: number;
  /** The reason why existing GPUs cannot be listed. */
  readonly problem?: string;
}

/** The kind of device of a run's processes. */
export type DeviceKind = 'gpu' | 'cpu';

/** A process that computes on a GPU. */
export interface GpuProcess {
  readonly gpuUuid: string;
  readonly pid: number;
  readonly name: string;
}

/** The devices of a run's processes. */
export interface Placement {
  /** GPU indices, divided evenly among the processes. Empty means the CPU. */
  readonly devices: readonly number[];
  /** CPU threads per process. 0 means all. */
  readonly threads: number;
}

/** The placement of a run in a few words. */
export function describePlacement({ devices, threads }: Placement, processes: number): string {
  if (devices.length > 0) return `GPU ${devices.join(',')}`;
  const share = threads === 0 ? 'all threads' : `${threads} thread${threads > 1 ? 's' : ''}`;
  return processes > 1 ? `CPU, ${processes} x ${share}` : `CPU, ${share}`;
}

/** If set to 1, runs also use GPUs that other processes use. */
export const SHARE_VARIABLE = 'EDITRL_SHARE_GPUS';

/** Makes CUDA number GPUs like nvidia-smi. Its default order is by speed. */
export const ORDER_VARIABLE = 'CUDA_DEVICE_ORDER';
export const PCI_ORDER = 'PCI_BUS_ID';

/** A GPU with more used memory than this counts as in use even without a visible process, because containers hide processes. */
const TAKEN_BYTES = 2 * 2 ** 30;
const MEBIBYTE = 2 ** 20;
const TIMEOUT_MS = 30_000;

/**
 * The GPUs that nvidia-smi lists and `CUDA_VISIBLE_DEVICES` allows (Slurm sets it), and the cores of this process. Without NVIDIA device files there are no
 * GPUs. `problem` is set if the files exist but nvidia-smi fails. Raises RunError if `CUDA_VISIBLE_DEVICES` names no listed GPU.
 */
export function detectDevices(env: Environment = process.env, machine: Machine = thisMachine()): Devices {
  const cpus = availableParallelism();
  const visible = env['CUDA_VISIBLE_DEVICES'];
  const isHidden = visible !== undefined && hidesAll(visible);
  if (isHidden || !hasGpu({ ...machine, visible: undefined })) return { gpus: [], cpus };
  const answer = queryNvidiaSmi('--query-gpu=index,uuid,name,memory.total,memory.used');
  if (answer === null) {
    return nvidiaFile(machine) === undefined
      ? { gpus: [], cpus }
      : { gpus: [], cpus, problem: 'nvidia-smi is not on PATH' };
  }
  if ('problem' in answer) return { gpus: [], cpus, problem: answer.problem };
  const gpus = parseGpus(answer.csv);
  if (visible === undefined) return { gpus, cpus };
  const seen = visibleGpus(gpus, visible);
  if (seen.length === 0 && gpus.length > 0) {
    throw new RunError(`CUDA_VISIBLE_DEVICES is '${visible}', but nvidia-smi does not list it; ${whatExists(gpus)}`, {
      next: "Name a whole GPU by its index or UUID (MIG slices are not supported), or use the CPU: CUDA_VISIBLE_DEVICES=''.",
    });
  }
  return { gpus: seen, cpus };
}

/**
 * Raises RunError if another process uses one of these GPUs or much of its memory. Queries nvidia-smi again. Checks nothing without GPUs, or with
 * EDITRL_SHARE_GPUS=1 in the environment.
 */
export function requireFree(
  indices: readonly number[],
  env: Environment = process.env,
  machine: Machine = thisMachine(),
): void {
  if (indices.length === 0 || env[SHARE_VARIABLE] === '1') return;
  const gpus = detectDevices(env, machine).gpus.filter((gpu) => indices.includes(gpu.index));
  const answer = queryNvidiaSmi('--query-compute-apps=gpu_uuid,pid,process_name');
  const problems = describeTakenGpus(gpus, answer === null || 'problem' in answer ? [] : parseGpuProcesses(answer.csv));
  if (problems.length === 0) return;
  throw new RunError(problems.join('\n'), {
    where: 'launch.devices',
    next: `Wait for it, name other GPUs in launch.devices, or share them on purpose: ${SHARE_VARIABLE}=1.`,
  });
}

/** One sentence for each GPU in use. */
export function describeTakenGpus(gpus: readonly Gpu[], processes: readonly GpuProcess[]): string[] {
  return gpus.flatMap((gpu) => {
    const users = processes.filter((process) => process.gpuUuid === gpu.uuid);
    const who = users.map(({ pid, name }) => `process ${pid} (${name})`).join(', ');
    if (users.length > 0) return [`GPU ${gpu.index} (${gpu.name}) is used by ${who}`];
    if (gpu.usedBytes === null || gpu.usedBytes <= TAKEN_BYTES) return [];
    return [
      `GPU ${gpu.index} (${gpu.name}) is in use: a process that nvidia-smi does not show has ${gibibytes(gpu.usedBytes)} of its memory`,
    ];
  });
}

/** The number of processes of a run. `auto` means one per GPU that it may use, or one on the CPU. */
export function processCount(
  launch: Pick<LaunchSettings, 'processes' | 'devices'>,
  devices: Pick<Devices, 'gpus'>,
  kind: DeviceKind,
): number {
  if (launch.processes !== 'auto') return launch.processes;
  return kind === 'cpu' ? 1 : Math.max(1, allowedGpus(devices.gpus, launch.devices).length);
}

/**
 * The placement of a run that has the whole machine: one GPU per process, or all cores divided among them. Raises ConfigError for GPUs that do not exist.
 */
export function wholeMachinePlacement(
  launch: Pick<LaunchSettings, 'processes' | 'devices'>,
  devices: Devices,
  kind: DeviceKind,
): Placement {
  const processes = processCount(launch, devices, kind);
  const placement = new DeviceSlots(devices, launch.devices, processes).tryAcquire(processes, kind);
  if (placement === null) throw new InternalError('a run does not fit on an empty machine');
  return placement;
}

/**
 * Assigns parts of a machine to runs: GPUs, or shares of the cores and of the memory. GPUs and CPU have separate slots, so that runs of one kind do not
 * wait for the other. Both share the cores, because a worker on a GPU rarely uses its threads.
 */
export class DeviceSlots {
  readonly #gpus: readonly Gpu[];
  readonly #size: Readonly<Record<DeviceKind, number>>;
  readonly #cpus: number;
  readonly #taken = new Map<Placement, { readonly kind: DeviceKind; readonly slots: number; readonly bytes: number }>();

  /**
   * `allowed`: GPU indices, null for all. `cpuSlots`: the number of CPU slots, null for one per core. `memoryBytes`: the memory for all runs together.
   * `leastBytes`: the memory of the smallest run on the CPU, 0 if unknown. Raises ConfigError for an index that does not exist.
   */
  constructor(
    devices: Devices,
    allowed: readonly number[] | null,
    cpuSlots: number | null = null,
    private readonly memoryBytes = Number.POSITIVE_INFINITY,
    private readonly leastBytes = 0,
  ) {
    this.#gpus = allowedGpus(devices.gpus, allowed);
    this.#size = { gpu: this.#gpus.length, cpu: cpuSlots ?? devices.cpus };
    this.#cpus = devices.cpus;
  }

  /** Number of slots. */
  size(kind: DeviceKind): number {
    return this.#size[kind];
  }

  /** Number of free slots. */
  free(kind: DeviceKind): number {
    const taken = [...this.#taken.values()].filter((one) => one.kind === kind);
    return this.#size[kind] - taken.reduce((sum, { slots }) => sum + slots, 0);
  }

  /**
   * A placement for one run with this need of memory, or null while there is no room. A run with more processes than CPU slots waits for all of them, and
   * a run that needs more memory than there is waits for all memory. A run that leaves too little memory for any other CPU run gets all free slots. Raises
   * ConfigError if it needs more GPUs than there are.
   */
  tryAcquire(processes: number, kind: DeviceKind, bytes = 0): Placement | null {
    const size = this.#size[kind];
    if (kind === 'gpu' && processes > size) throw tooManyProcesses(processes, this.#gpus);
    const needed = Math.min(processes, size);
    const memory = Math.min(bytes, this.memoryBytes);
    const memoryLeft = this.#freeMemory() - memory;
    if (needed > this.free(kind) || memoryLeft < 0) return null;
    const slots = kind === 'cpu' && memoryLeft < this.leastBytes ? this.free(kind) : needed;
    const placement = {
      devices: kind === 'gpu' ? this.#freeGpus().slice(0, slots) : [],
      threads: Math.max(1, Math.floor((slots * this.#cpus) / size / processes)),
    };
    this.#taken.set(placement, { kind, slots, bytes: memory });
    return placement;
  }

  /** Releases a placement: the object that `tryAcquire` returned. */
  release(placement: Placement): void {
    if (!this.#taken.delete(placement)) throw new InternalError('released device slots that are not in use');
  }

  #freeMemory(): number {
    return this.memoryBytes - [...this.#taken.values()].reduce((sum, { bytes }) => sum + bytes, 0);
  }

  #freeGpus(): number[] {
    const inUse = new Set([...this.#taken.keys()].flatMap((placement) => placement.devices));
    return this.#gpus.map(({ index }) => index).filter((index) => !inUse.has(index));
  }
}

/** The GPUs of one rank: an equal part of the placement, in order. Raises ConfigError if they cannot be divided evenly. */
export function devicesOfRank(placement: Placement, rank: number, processes: number): number[] {
  const { devices } = placement;
  if (devices.length % processes !== 0) {
    throw new ConfigError(`${devices.length} GPUs cannot be divided evenly among ${processes} processes`, {
      where: 'launch.processes',
    });
  }
  const each = devices.length / processes;
  return devices.slice(rank * each, (rank + 1) * each);
}

/** Parses the output of `--query-gpu=index,uuid,name,memory.total,memory.used` (CSV, MiB). Raises RunError on an invalid line. */
export function parseGpus(answer: string): Gpu[] {
  return lines(answer)
    .map((line) => {
      // Only the name of a GPU may contain a comma.
      const fields = /^(\d+),\s*([^,]+),\s*(.+),\s*([^,]+),\s*([^,]+)$/.exec(line);
      if (fields === null) throw unreadable(line);
      const [, index, uuid, name, total, used] = fields;
      return { index: Number(index), uuid, name, memoryBytes: bytesOf(total, line), usedBytes: bytesOf(used, line) };
    })
    .sort((a, b) => a.index - b.index);
}

/** Parses the output of `--query-compute-apps=gpu_uuid,pid,process_name`. Raises RunError on an invalid line. */
export function parseGpuProcesses(answer: string): GpuProcess[] {
  return lines(answer).map((line) => {
    const fields = /^([^,]+),\s*(\d+),\s*(.*)$/.exec(line);
    if (fields === null) throw unreadable(line);
    return { gpuUuid: fields[1], pid: Number(fields[2]), name: fields[3] };
  });
}

/** The GPUs of a value of `CUDA_VISIBLE_DEVICES`, by index or by the start of a UUID. Like CUDA, stops at the first unknown one. */
export function visibleGpus(gpus: readonly Gpu[], visible: string): Gpu[] {
  const found: Gpu[] = [];
  for (const name of visible.split(',').map((part) => part.trim())) {
    const gpu = gpus.find(({ index, uuid }) => (/^\d+$/.test(name) ? index === Number(name) : uuid.startsWith(name)));
    if (gpu === undefined) break;
    if (!found.includes(gpu)) found.push(gpu);
  }
  return found.sort((a, b) => a.index - b.index);
}

/** Whether a value of `CUDA_VISIBLE_DEVICES` hides all GPUs. nvidia-smi is not queried then. */
function hidesAll(visible: string): boolean {
  return ['', '-1', 'NoDevFiles'].includes(visible.trim());
}

function allowedGpus(gpus: readonly Gpu[], allowed: readonly number[] | null): readonly Gpu[] {
  if (allowed === null) return gpus;
  const unknown = [...new Set(allowed)].filter((index) => !gpus.some((gpu) => gpu.index === index));
  if (unknown.length > 0) {
    throw new ConfigError(`there is no GPU ${unknown.join(', ')}; ${whatExists(gpus)}`, {
      where: 'launch.devices',
      next:
        gpus.length > 0
          ? 'Name GPUs that exist, or null for all of them.'
          : 'Set launch.devices to null, or to [] for the CPU.',
    });
  }
  return gpus.filter((gpu) => allowed.includes(gpu.index));
}

function tooManyProcesses(processes: number, gpus: readonly Gpu[]): ConfigError {
  return new ConfigError(`a run of ${processes} processes needs ${processes} GPUs; ${whatExists(gpus)}`, {
    where: 'launch.processes',
    next: `Set launch.processes to at most ${gpus.length}, allow more GPUs in launch.devices, or use the CPU: policy.engine.provider 'cpu', or launch.devices [].`,
  });
}

function whatExists(gpus: readonly Gpu[]): string {
  if (gpus.length === 0) return 'this machine has no GPU';
  return `usable here: ${gpus.map((gpu) => `${gpu.index} (${gpu.name})`).join(', ')}`;
}

/** Error codes of a program that is not on PATH. An entry of PATH may be forbidden. */
const NOT_FOUND: ReadonlySet<string> = new Set(['ENOENT', 'EACCES', 'ENOTDIR', 'ELOOP', 'ENAMETOOLONG']);

/** The CSV output of nvidia-smi, empty without GPUs, or the reason why it fails. Null if it is not installed. */
function queryNvidiaSmi(query: string): { readonly csv: string } | { readonly problem: string } | null {
  const result = spawnSync('nvidia-smi', [query, '--format=csv,noheader,nounits'], {
    encoding: 'utf8',
    timeout: TIMEOUT_MS,
  });
  const { code = '' } = (result.error ?? {}) as NodeJS.ErrnoException;
  if (NOT_FOUND.has(code)) return null;
  if (result.status === 0) return { csv: result.stdout };
  const output = `${result.stdout ?? ''}${result.stderr ?? ''}`.trim();
  if (output.includes('No devices were found')) return { csv: '' };
  const ended =
    result.error !== undefined ? result.error.message : `it ended with ${result.status ?? result.signal ?? 'nothing'}`;
  return { problem: `nvidia-smi does not work: ${output === '' ? ended : output}` };
}

function lines(answer: string): string[] {
  return answer
    .split('\n')
    .map((line) => line.trim())
    .filter((line) => line !== '');
}

/** Converts MiB to bytes. Null for a value that the driver does not report and writes in brackets. */
function bytesOf(field: string, line: string): number | null {
  if (/^\[.*\]$/.test(field.trim())) return null;
  const mebibytes = Number(field);
  if (!Number.isFinite(mebibytes)) throw unreadable(line);
  return mebibytes * MEBIBYTE;
}

function unreadable(line: string): RunError {
  return new RunError(`cannot read this line of nvidia-smi: ${line}`, {
    next: "Run nvidia-smi by hand, or use the CPU: CUDA_VISIBLE_DEVICES=''.",
  });
}

export function gibibytes(bytes: number): string {
  return `${(bytes / 2 ** 30).toFixed(1)} GiB`;
}

/** Raises ConfigError if there are fewer cores than processes. */
export function checkCores(processes: number, cpus: number): void {
  if (processes <= cpus) return;
  throw new ConfigError(`found ${processes} processes on the CPU, but this machine has ${cpus} CPU cores`, {
    where: 'launch.processes',
    next: `Set launch.processes to at most ${cpus}.`,
  });
}

/**
 * `cpu` without GPUs, with empty `launch.devices`, or if all engines of the run compute on the CPU, with `auto` resolved as the workers do. A foreign trainer
 * is assumed to use GPUs, and so is a training server of the run without named devices.
 */
export function deviceKind(
  settings: RunSettings,
  devices: Pick<Devices, 'gpus'>,
  auto: () => 'cuda' | 'cpu' = detectedProvider,
): DeviceKind {
  // A run with its own training server may leave all GPUs to it.
  const serve = trainerServeOf(settings);
  const { gpus } = serve === null ? devices : runDevices(settings, devices);
  if (gpus.length === 0 || settings.launch.devices?.length === 0) return 'cpu';
  // The server computes on the GPU of the run, wherever the run itself computes.
  if (serve !== null && serve.devices === null && serve.mode !== 'jax') return 'gpu';
  if (settings.launch.command !== null || !isTrainable(settings)) return 'gpu';
  const onCpu = enginesOf(settings).every(({ provider }) => (provider === 'auto' ? auto() : provider) === 'cpu');
  return onCpu ? 'cpu' : 'gpu';
}

/** The devices for a run itself, without the GPUs of its own server. */
export function runDevices<D extends Pick<Devices, 'gpus'>>(settings: RunSettings, devices: D): D {
  const served = serveOf(settings)?.devices ?? trainerServeOf(settings)?.devices ?? [];
  return { ...devices, gpus: devices.gpus.filter(({ index }) => !served.includes(index)) };
}

/**
 * The GPUs of a server that starts with a run: the ones that it names. Otherwise a sampling server gets a free GPU that the run may use, else the first GPU
 * of the run, which they share. A training server gets the GPUs of the run, or the first that it may use. Null without such a server or GPU.
 */
export function serverDevices(
  settings: RunSettings,
  devices: Pick<Devices, 'gpus'>,
  taken: readonly number[],
): readonly number[] | null {
  const trains = trainerServeOf(settings);
  if (trains !== null) return trainerDevices(trains.devices, settings, devices, taken);
  const serve = serveOf(settings);
  if (serve === null) return null;
  if (serve.devices !== null) return serve.devices;
  if (taken.length === 0) return null;
  const allowed = settings.launch.devices;
  const spare = devices.gpus.filter(({ index }) => !taken.includes(index) && (allowed?.includes(index) ?? true));
  return [...spare.map(({ index }) => index), ...taken].slice(0, 1);
}

function trainerDevices(
  named: readonly number[] | null,
  { launch }: RunSettings,
  { gpus }: Pick<Devices, 'gpus'>,
  taken: readonly number[],
): readonly number[] | null {
  if (named !== null) return named;
  // A run in a sweep keeps to its own GPUs.
  if (taken.length > 0) return taken;
  const usable = gpus.filter(({ index }) => launch.devices?.includes(index) ?? true);
  return usable.length === 0 ? null : [usable[0].index];
}

function serveOf(settings: RunSettings): ServeSettings | null {
  return isTrainable(settings) ? (recipeOf(settings).sampler(settings)?.engine.serve ?? null) : null;
}

/** The configured number of processes, but at most the micro-batches of a step. Further processes would be idle. */
export function processesOf(settings: RunSettings, devices: Pick<Devices, 'gpus'>, kind: DeviceKind): number {
  const requested = processCount(settings.launch, devices, kind);
  if (settings.launch.command !== null || !isTrainable(settings)) return requested;
  return Math.min(requested, recipeOf(settings).microBatches(settings));
}

/** Whether a run takes memory of this machine, as far as is known. Slurm runs it on another machine, and a foreign trainer's need is unknown. */
export function takesMemoryHere(settings: RunSettings): boolean {
  return settings.launch.backend !== 'slurm' && settings.launch.command === null && cannotRunYet(settings).length === 0;
}

/** The reason why a run has fewer processes than its config requests. Null if it has as many. */
export function whyFewerProcesses(
  settings: RunSettings,
  devices: Pick<Devices, 'gpus'>,
  kind: DeviceKind,
): string | null {
  const [wanted, processes] = [processCount(settings.launch, devices, kind), processesOf(settings, devices, kind)];
  if (processes >= wanted) return null;
  return `starting ${processes} of ${wanted} processes, because a step has ${processes} micro-batch${processes === 1 ? '' : 'es'}; a lower optimizer.per_device_batch_size gives more`;
}

let here: 'cuda' | 'cpu' | null = null;

/** Cached, because a large matrix needs it for each cell. */
function detectedProvider(): 'cuda' | 'cpu' {
  return (here ??= autoProvider());
}
