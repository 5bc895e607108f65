/** What a machine computes with, and how it is shared: GPUs if there are any, else CPU cores as threads. */
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
  /** As nvidia-smi and `launch.devices` count them. */
  readonly index: number;
  readonly uuid: string;
  readonly name: string;
  /** Total memory; null if the driver does not report it. */
  readonly memoryBytes: number | null;
  /** Used memory, by any process; null if the driver does not report it. */
  readonly usedBytes: number | null;
}

export interface Devices {
  /** Ascending by index; empty where there are none. */
  readonly gpus: readonly Gpu[];
  /** Cores that this process may use. */
  readonly cpus: number;
  /** Why GPUs that exist cannot be listed, as a sentence. */
  readonly problem?: string;
}

/** What a run's processes compute on. */
export type DeviceKind = 'gpu' | 'cpu';

/** A process that computes on a GPU. */
export interface GpuProcess {
  readonly gpuUuid: string;
  readonly pid: number;
  readonly name: string;
}

/** Where a run's processes compute. */
export interface Placement {
  /** GPU indices, shared out evenly over the run's processes; empty means the CPU. */
  readonly devices: readonly number[];
  /** CPU threads per process; 0 means all. */
  readonly threads: number;
}

/** Where a run computes, in a few letters. */
export function describePlacement({ devices, threads }: Placement, processes: number): string {
  if (devices.length > 0) return `GPU ${devices.join(',')}`;
  const share = threads === 0 ? 'all threads' : `${threads} thread${threads > 1 ? 's' : ''}`;
  return processes > 1 ? `CPU, ${processes} x ${share}` : `CPU, ${share}`;
}

/** If set to 1, GPUs that other processes use are taken anyway. */
export const SHARE_VARIABLE = 'EDITRL_SHARE_GPUS';

/** CUDA numbers GPUs by speed unless this makes it use nvidia-smi's order, which is used throughout. */
export const ORDER_VARIABLE = 'CUDA_DEVICE_ORDER';
export const PCI_ORDER = 'PCI_BUS_ID';

/** A GPU with more used memory than this counts as taken even if no process is visible: containers hide other processes. */
const TAKEN_BYTES = 2 * 2 ** 30;
const MEBIBYTE = 2 ** 20;
const TIMEOUT_MS = 30_000;

/**
 * The GPUs that nvidia-smi lists and `CUDA_VISIBLE_DEVICES` leaves (Slurm sets it), and the cores of this process. There are none without NVIDIA's
 * device files. If nvidia-smi cannot list them although the files exist, `problem` says why. Raises RunError if `CUDA_VISIBLE_DEVICES` names none.
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
    throw new RunError(
      `CUDA_VISIBLE_DEVICES is '${visible}', which is none of the GPUs that nvidia-smi lists; ${whatExists(gpus)}`,
      {
        next: "Name a whole GPU by its index or UUID (a slice of one, MIG, is not covered), or use the CPU: CUDA_VISIBLE_DEVICES=''.",
      },
    );
  }
  return { gpus: seen, cpus };
}

/**
 * Raises RunError when another process computes on a GPU, or holds much of its memory; queries nvidia-smi again. Checks nothing for the CPU, or if
 * the environment has EDITRL_SHARE_GPUS=1.
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

/** One sentence for each GPU that somebody uses. */
export function describeTakenGpus(gpus: readonly Gpu[], processes: readonly GpuProcess[]): string[] {
  return gpus.flatMap((gpu) => {
    const users = processes.filter((process) => process.gpuUuid === gpu.uuid);
    const who = users.map(({ pid, name }) => `process ${pid} (${name})`).join(', ');
    if (users.length > 0) return [`GPU ${gpu.index} (${gpu.name}) is taken by ${who}`];
    if (gpu.usedBytes === null || gpu.usedBytes <= TAKEN_BYTES) return [];
    return [
      `GPU ${gpu.index} (${gpu.name}) is taken: ${gibibytes(gpu.usedBytes)} of its memory are in use by a process that nvidia-smi does not show`,
    ];
  });
}

/** Number of processes of a run: `auto` means one per GPU that it may use, or one on the CPU. */
export function processCount(
  launch: Pick<LaunchSettings, 'processes' | 'devices'>,
  devices: Pick<Devices, 'gpus'>,
  kind: DeviceKind,
): number {
  if (launch.processes !== 'auto') return launch.processes;
  return kind === 'cpu' ? 1 : Math.max(1, allowedGpus(devices.gpus, launch.devices).length);
}

/**
 * A run's placement if it has the machine to itself: one GPU per process, or all cores divided among them. Raises ConfigError for GPUs that do not
 * exist.
 */
export function wholeMachinePlacement(
  launch: Pick<LaunchSettings, 'processes' | 'devices'>,
  devices: Devices,
  kind: DeviceKind,
): Placement {
  const processes = processCount(launch, devices, kind);
  const placement = new DeviceSlots(devices, launch.devices, processes).tryAcquire(processes, kind);
  if (placement === null) throw new InternalError('an empty machine has no room for a run');
  return placement;
}

/**
 * Assigns parts of a machine to runs: GPUs to those that compute on GPUs, shares of the cores and of the memory to those that compute on the CPU. Each
 * kind has its own slots, so that neither waits for the other; both share the cores, because a worker on a GPU leaves its threads idle most of the time.
 */
export class DeviceSlots {
  readonly #gpus: readonly Gpu[];
  readonly #size: Readonly<Record<DeviceKind, number>>;
  readonly #cpus: number;
  readonly #taken = new Map<Placement, { readonly kind: DeviceKind; readonly slots: number; readonly bytes: number }>();

  /**
   * `allowed`: GPU indices, null for all. `cpuSlots`: how many slots the cores are divided into; null means one per core. `memoryBytes`: what runs may
   * take of the machine's memory together. `leastBytes`: what the smallest run on the CPU takes of it; 0 if that is not known. Raises ConfigError for
   * an index that does not exist.
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

  /** How many slots there are. */
  size(kind: DeviceKind): number {
    return this.#size[kind];
  }

  /** Number of free slots. */
  free(kind: DeviceKind): number {
    const taken = [...this.#taken.values()].filter((one) => one.kind === kind);
    return this.#size[kind] - taken.reduce((sum, { slots }) => sum + slots, 0);
  }

  /**
   * Room for one run that takes so many bytes of the machine's memory, or null while there is none. A run with more processes than CPU slots waits for
   * all of them, and one that takes more memory than there is for all of that. One that leaves too little memory for any other on the CPU has all
   * slots that are free. Raises ConfigError when it needs more GPUs than there are.
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

  /** Returns a placement, which must be the object that `tryAcquire` returned. */
  release(placement: Placement): void {
    if (!this.#taken.delete(placement)) throw new InternalError('device slots are released that nobody has');
  }

  #freeMemory(): number {
    return this.memoryBytes - [...this.#taken.values()].reduce((sum, { bytes }) => sum + bytes, 0);
  }

  #freeGpus(): number[] {
    const inUse = new Set([...this.#taken.keys()].flatMap((placement) => placement.devices));
    return this.#gpus.map(({ index }) => index).filter((index) => !inUse.has(index));
  }
}

/** The GPUs of one rank: an equal part of the placement's, in order. Raises ConfigError when they cannot be divided evenly. */
export function devicesOfRank(placement: Placement, rank: number, processes: number): number[] {
  const { devices } = placement;
  if (devices.length % processes !== 0) {
    throw new ConfigError(`${devices.length} GPUs cannot be shared out evenly over ${processes} processes`, {
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
      // Only a GPU's name may contain a comma.
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

/** The GPUs that a value of `CUDA_VISIBLE_DEVICES` names, by index or by (the beginning of) a UUID; like CUDA, up to the first unknown one. */
export function visibleGpus(gpus: readonly Gpu[], visible: string): Gpu[] {
  const found: Gpu[] = [];
  for (const name of visible.split(',').map((part) => part.trim())) {
    const gpu = gpus.find(({ index, uuid }) => (/^\d+$/.test(name) ? index === Number(name) : uuid.startsWith(name)));
    if (gpu === undefined) break;
    if (!found.includes(gpu)) found.push(gpu);
  }
  return found.sort((a, b) => a.index - b.index);
}

/** Whether a value of `CUDA_VISIBLE_DEVICES` hides every GPU; nvidia-smi is then not queried at all. */
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

/** Errors of starting a program of which no entry of PATH leads to one; an entry that may not be entered is one of them. */
const NOT_FOUND: ReadonlySet<string> = new Set(['ENOENT', 'EACCES', 'ENOTDIR', 'ELOOP', 'ENAMETOOLONG']);

/** The CSV output of nvidia-smi, empty if it finds no GPU; or why it gives none; null if it is not installed. */
function queryNvidiaSmi(query: string): { readonly csv: string } | { readonly problem: string } | null {
  const asked = spawnSync('nvidia-smi', [query, '--format=csv,noheader,nounits'], {
    encoding: 'utf8',
    timeout: TIMEOUT_MS,
  });
  const { code = '' } = (asked.error ?? {}) as NodeJS.ErrnoException;
  if (NOT_FOUND.has(code)) return null;
  if (asked.status === 0) return { csv: asked.stdout };
  const said = `${asked.stdout ?? ''}${asked.stderr ?? ''}`.trim();
  if (said.includes('No devices were found')) return { csv: '' };
  const ended =
    asked.error !== undefined ? asked.error.message : `it ended with ${asked.status ?? asked.signal ?? 'nothing'}`;
  return { problem: `nvidia-smi does not work: ${said === '' ? ended : said}` };
}

function lines(answer: string): string[] {
  return answer
    .split('\n')
    .map((line) => line.trim())
    .filter((line) => line !== '');
}

/** A number of MiB in bytes; null for a value that the driver does not report, which it writes in brackets. */
function bytesOf(field: string, line: string): number | null {
  if (/^\[.*\]$/.test(field.trim())) return null;
  const mebibytes = Number(field);
  if (!Number.isFinite(mebibytes)) throw unreadable(line);
  return mebibytes * MEBIBYTE;
}

function unreadable(line: string): RunError {
  return new RunError(`nvidia-smi answered with a line that is not understood: ${line}`, {
    next: "Run nvidia-smi by hand, or use the CPU: CUDA_VISIBLE_DEVICES=''.",
  });
}

export function gibibytes(bytes: number): string {
  return `${(bytes / 2 ** 30).toFixed(1)} GiB`;
}

/** Raises ConfigError when there are fewer cores than processes. */
export function checkCores(processes: number, cpus: number): void {
  if (processes <= cpus) return;
  throw new ConfigError(`${processes} processes are to run on the CPU, and this machine has ${cpus} CPU cores`, {
    where: 'launch.processes',
    next: `Set launch.processes to at most ${cpus}.`,
  });
}

/**
 * `cpu` if there is no GPU, if `launch.devices` is empty, or if all engines of the run compute on the CPU, with `auto` resolved as its workers will.
 * Another trainer is assumed to use the existing GPUs, and so is a training server that is started with the run and names none.
 */
export function deviceKind(
  settings: RunSettings,
  devices: Pick<Devices, 'gpus'>,
  auto: () => 'cuda' | 'cpu' = detectedProvider,
): DeviceKind {
  // A run whose policy is trained by a server of its own may leave all GPUs to that.
  const serve = trainerServeOf(settings);
  const { gpus } = serve === null ? devices : runDevices(settings, devices);
  if (gpus.length === 0 || settings.launch.devices?.length === 0) return 'cpu';
  // That server computes on the GPU that the run is given, wherever the run itself computes.
  if (serve !== null && serve.devices === null && serve.mode !== 'jax') return 'gpu';
  if (settings.launch.command !== null || !isTrainable(settings)) return 'gpu';
  const onCpu = enginesOf(settings).every(({ provider }) => (provider === 'auto' ? auto() : provider) === 'cpu');
  return onCpu ? 'cpu' : 'gpu';
}

/** What a run itself may use of a machine, without the GPUs of a server that is started with it. */
export function runDevices<D extends Pick<Devices, 'gpus'>>(settings: RunSettings, devices: D): D {
  const served = serveOf(settings)?.devices ?? trainerServeOf(settings)?.devices ?? [];
  return { ...devices, gpus: devices.gpus.filter(({ index }) => !served.includes(index)) };
}

/**
 * The GPUs of a server that is started with a run: those that it names. Else one that samples has one that the run may use but does not, else the run's
 * first, which they share; one that trains has those of the run, or the first that it may use. Null if there is no GPU to assign: there is no such
 * server, or no such GPU.
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
  // A run that was given GPUs among others keeps to them.
  if (taken.length > 0) return taken;
  const usable = gpus.filter(({ index }) => launch.devices?.includes(index) ?? true);
  return usable.length === 0 ? null : [usable[0].index];
}

function serveOf(settings: RunSettings): ServeSettings | null {
  return isTrainable(settings) ? (recipeOf(settings).sampler(settings)?.engine.serve ?? null) : null;
}

/** The number of processes in the config, but not more than a step has micro-batches: the others would have nothing to compute. */
export function processesOf(settings: RunSettings, devices: Pick<Devices, 'gpus'>, kind: DeviceKind): number {
  const asked = processCount(settings.launch, devices, kind);
  if (settings.launch.command !== null || !isTrainable(settings)) return asked;
  return Math.min(asked, recipeOf(settings).microBatches(settings));
}

/** Whether a run takes memory of this machine, as far as is known. Slurm runs it on another machine, and a foreign trainer's need is unknown. */
export function takesMemoryHere(settings: RunSettings): boolean {
  return settings.launch.backend !== 'slurm' && settings.launch.command === null && cannotRunYet(settings).length === 0;
}

/** Why a run has fewer processes than its config asks for, as a sentence without its end; null if it has as many. */
export function whyFewerProcesses(
  settings: RunSettings,
  devices: Pick<Devices, 'gpus'>,
  kind: DeviceKind,
): string | null {
  const [asked, processes] = [processCount(settings.launch, devices, kind), processesOf(settings, devices, kind)];
  if (processes >= asked) return null;
  return `${asked} processes are asked for, but a step has ${processes} micro-batch${processes === 1 ? '' : 'es'}: so many are started. A lower optimizer.per_device_batch_size gives it more`;
}

let here: 'cuda' | 'cpu' | null = null;

/** Cached: a large matrix asks for each of its cells. */
function detectedProvider(): 'cuda' | 'cpu' {
  return (here ??= autoProvider());
}
