/** How much memory there is, and whether a run's estimated need fits. */
import { readFileSync } from 'node:fs';
import { freemem, totalmem } from 'node:os';
import { join } from 'node:path';
import { largestImage } from '../../data/inpainting.js';
import { sourceSizes } from '../../data/image_edits.js';
import { readConfig } from '../../models/files.js';
import { isPipeline, readPipeline } from '../../models/pipeline.js';
import { autoencoderClasses, describeAutoencoder } from '../../models/networks/autoencoder.js';
import { emu3VisionTypes, readEmu3Vision, WHOLE } from '../../compute/nets/emu3_vision/config.js';
import { rootOf } from '../../models/adapters/files.js';
import { describeFlowModel } from '../../train/policies/flow/load.js';
import { describeModel, readableParts } from '../../models/adapters/decoder.js';
import { cachedSnapshot } from '../../models/hub/cache.js';
import { frozenBytes, type DataSizes, type ModelShape, type ShapeOf } from '../../recipes/shared/memory.js';
import { isTrainable } from '../../config/recipes.js';
import { recipeOf, rewardOf } from '../../recipes/settings.js';
import { chosenTerms } from '../../rewards/score/choice.js';
import { embedderTypes, imageEncoderTypes } from '../../compute/nets/clip/config.js';
import { embedderBytes, imageEncoderBytes } from '../../models/networks/clip.js';
import type { ModelReference } from '../../config/schema/model.js';
import { EditrlError } from '../../core/errors.js';
import type { RunSettings, TrainedSettings } from '../../config/schema/run.js';
import { deviceKind, gibibytes, processesOf, runDevices, type DeviceKind, type Devices, type Gpu } from './devices.js';
import { autoencoderShape, flowShape, imageTokenizerShape, pipelineShape } from './frozen_shapes.js';
import { placedParts, placeParts, type PlacedPart, type PlacedParts } from './placement.js';

/** A recipe's estimate is right within this factor: a need beyond it certainly does not fit. */
const ESTIMATE_FACTOR = 2;

/** Bytes available without swapping; on Linux including reclaimable caches. */
export function availableMemory(): number {
  if (process.platform !== 'linux') return freemem();
  const match = /^MemAvailable:\s+(\d+) kB/m.exec(readFileSync('/proc/meminfo', 'utf8'));
  return match === null ? freemem() : Number(match[1]) * 1024;
}

/** Memory of a machine, or of this process's control group, in bytes. */
export interface Memory {
  readonly free: number;
  readonly total: number;
}

export function machineMemory(): Memory {
  // 0 if no limit is known.
  const limit = process.constrainedMemory() || Infinity;
  // What the group uses includes files that are cached, which give way.
  const left = process.availableMemory() + cachedInGroup();
  return { free: Math.min(availableMemory(), limit, left), total: Math.min(totalmem(), limit) };
}

/**
 * Bytes of cached files in this process's control group that its next allocations may take; 0 where that cannot be read.
 * @param root Of the file system. Linux writes there what the group uses.
 */
export function cachedInGroup(root = '/'): number {
  const groups = textOrEmpty(join(root, 'proc/self/cgroup'));
  const folders = [...groups.matchAll(/^\d+:(memory)?:(.*)$/gm)].flatMap(([, controller = '', path]) => {
    const mounted = join(root, 'sys/fs/cgroup', controller);
    // In a container the group's own folder may be mounted as the root.
    return [join(mounted, path), mounted];
  });
  for (const folder of folders) {
    const found = /^inactive_file (\d+)$/m.exec(textOrEmpty(join(folder, 'memory.stat')));
    if (found !== null) return Number(found[1]);
  }
  return 0;
}

function textOrEmpty(file: string): string {
  try {
    return readFileSync(file, 'utf8');
  } catch {
    return '';
  }
}

export interface MemoryVerdict {
  readonly fits: boolean;
  /** Even if the estimate is too high by its factor, it would not fit with all memory free. */
  readonly hopeless: boolean;
  /** Bytes that all processes sharing the memory need together. */
  readonly neededBytes: number;
  /** Free and total bytes where the run would be placed. */
  readonly freeBytes: number;
  readonly totalBytes: number;
  /** What to do when it does not fit. */
  readonly advice: string | null;
}

/** Whether processes with this need each fit: one on each GPU, or all in the machine's memory. */
export function memoryVerdict(
  bytes: number,
  processes: number,
  gpus: readonly Gpu[],
  machine: Memory = machineMemory(),
  less?: string,
): MemoryVerdict {
  const onGpus = gpus.flatMap(({ memoryBytes: total, usedBytes }) =>
    total === null ? [] : [{ total, free: total - (usedBytes ?? 0) }],
  );
  return verdictOf(bytes, processes, onGpus, machine, less);
}

/** Whether the parts of one process fit on their GPUs, each of which may be filled up to a limit: the verdict of the fullest. */
export function placedVerdict(
  bytes: Readonly<Record<PlacedPart, number>>,
  { devices }: PlacedParts,
  limit: number,
  gpus: readonly Gpu[],
  machine: Memory,
): MemoryVerdict {
  const verdicts = gpus.flatMap((gpu) => {
    const here = placedParts.filter((part) => devices[part] === gpu.index);
    const { memoryBytes, usedBytes } = gpu;
    if (here.length === 0 || memoryBytes === null) return [];
    const total = limit * memoryBytes;
    const place = { total, free: Math.min(total, memoryBytes - (usedBytes ?? 0)) };
    const needed = here.reduce((sum, part) => sum + bytes[part], 0);
    const verdict = verdictOf(needed, 1, [place], machine);
    const advice = verdict.fits
      ? null
      : `${here.join(' and ')} on GPU ${gpu.index}: place them apart in launch.placement, or lower optimizer.per_device_batch_size`;
    return [{ ...verdict, advice }];
  });
  const all = placedParts.reduce((sum, part) => sum + bytes[part], 0);
  const [fullest] = verdicts.sort((a, b) => b.neededBytes / b.freeBytes - a.neededBytes / a.freeBytes);
  return fullest ?? verdictOf(all, 1, [], machine);
}

const LESS_AT_ONCE = 'lower optimizer.per_device_batch_size';

/** Settings that make a run smaller, among those that it has. */
function waysToShrink(settings: RunSettings): string {
  const { policy, rollout } = settings as { readonly policy?: object; readonly rollout?: object };
  const context = policy !== undefined && 'model_context_size' in policy;
  const chunks = context && rollout !== undefined && 'chunk_groups' in rollout ? ', rollout.chunk_groups' : '';
  return `${LESS_AT_ONCE}${chunks}${context ? ' or policy.model_context_size' : ''}, or launch.processes`;
}

/** @param onGpus empty for the machine's main memory. */
function verdictOf(
  bytes: number,
  processes: number,
  onGpus: readonly Memory[],
  machine: Memory,
  less = LESS_AT_ONCE,
): MemoryVerdict {
  const places = onGpus.length > 0 ? onGpus : [machine];
  const [freeBytes, totalBytes] = [
    Math.min(...places.map(({ free }) => free)),
    Math.min(...places.map(({ total }) => total)),
  ];
  const neededBytes = onGpus.length > 0 ? bytes : bytes * processes;
  const fits = neededBytes <= freeBytes;
  const advice = fits ? null : less;
  return { fits, hopeless: neededBytes > ESTIMATE_FACTOR * totalBytes, neededBytes, freeBytes, totalBytes, advice };
}

export interface RunMemory {
  readonly device: DeviceKind;
  readonly processes: number;
  /** Estimated bytes of one process; null if the settings do not tell. */
  readonly bytes: number | null;
  readonly verdict: MemoryVerdict | null;
  /** Where its parts are; null if the settings do not say, or name GPUs that do not exist. */
  readonly placed: PlacedParts | null;
}

/** The check before a run reports what is wrong with it. */
function placedOrNull(
  placement: NonNullable<RunSettings['launch']['placement']>,
  gpus: readonly Gpu[],
): PlacedParts | null {
  try {
    return placeParts(placement, gpus);
  } catch (error) {
    if (error instanceof EditrlError) return null;
    throw error;
  }
}

/** The shapes of models that runs make, and of models on this machine. */
export function shapesOf(runs: ReadonlyMap<string, RunSettings>): ShapeOf {
  const folders = new Map<string, ModelShape | null>();
  const shapeOf: ShapeOf = (reference) => {
    const folder = typeof reference === 'string' ? reference : 'hub' in reference ? cachedSnapshot(reference) : null;
    if (folder !== null) {
      if (!folders.has(folder)) folders.set(folder, shapeOfFolder(folder));
      return folders.get(folder) ?? null;
    }
    const made = typeof reference === 'object' && 'run' in reference ? runs.get(reference.run) : undefined;
    return made !== undefined && isTrainable(made) ? recipeOf(made).shape(made, shapeOf) : null;
  };
  return shapeOf;
}

/** Reads the picture sizes of each dataset once. */
function sizesOnce(): DataSizes {
  return { largest: once(largestImage), shown: once(sourceSizes) };
}

/** A look at what an argument names, which is taken once. */
function once<A, T>(look: (at: A) => T): (at: A) => T {
  const found = new Map<string, { readonly is: T }>();
  return (at) => {
    const key = JSON.stringify(at);
    const known = found.get(key) ?? { is: look(at) };
    found.set(key, known);
    return known.is;
  };
}

/** Null if a folder has no model that can be opened, which is reported by the code that opens it. */
function shapeOfFolder(folder: string): ModelShape | null {
  try {
    if (isPipeline(folder)) return pipelineShape(readPipeline(folder));
    const config = readConfig<{ readonly _class_name?: unknown; readonly model_type?: unknown }>(rootOf(folder));
    if (autoencoderClasses.includes(String(config._class_name))) {
      return autoencoderShape(describeAutoencoder(folder));
    }
    const type = String(config.model_type);
    if (emu3VisionTypes.includes(type) && type !== WHOLE) return imageTokenizerShape(readEmu3Vision(config, folder));
    if (imageEncoderTypes.includes(type)) return { kind: 'graphs', bytes: imageEncoderBytes(folder) };
    if (embedderTypes.includes(type)) {
      return { kind: 'graphs', bytes: embedderBytes(folder), visionBytes: imageEncoderBytes(folder) };
    }
    return '_class_name' in config
      ? flowShape(describeFlowModel(folder))
      : describeModel(folder, readableParts(folder));
  } catch (error) {
    if (error instanceof EditrlError) return null;
    throw error;
  }
}

/** Memory for the models that a reward's terms hold beside the policy. */
function rewardBytes(settings: RunSettings, shapeOf: ShapeOf): number {
  const reward = rewardOf(settings);
  if (reward === null) return 0;
  const models = chosenTerms(reward).map(({ fields }) => fields['model']);
  const held = new Map(models.map((model) => [JSON.stringify(model), (model ?? null) as ModelReference | null]));
  return [...held.values()].reduce((sum, model) => sum + frozenBytes(model, shapeOf), 0);
}

/** The settings with the smallest micro-batch and the shortest texts, a lower bound for their estimates. */
function smallestSettings(settings: TrainedSettings): TrainedSettings {
  const policy = (settings as { readonly policy?: object }).policy;
  return {
    ...settings,
    optimizer: { ...settings.optimizer, per_device_batch_size: 1 },
    ...(policy !== undefined && 'model_context_size' in policy ? { policy: { ...policy, model_context_size: 1 } } : {}),
  };
}

/** Does not suggest a smaller batch if the models alone do not fit. */
function withLeast(verdict: MemoryVerdict, settings: TrainedSettings, least: number | null): MemoryVerdict {
  if (verdict.fits || least === null || least <= verdict.totalBytes) return verdict;
  const { policy } = settings as { readonly policy?: { readonly lora?: unknown; readonly model?: unknown } };
  // Random weights are no base for an adapter.
  const adapter = policy?.lora === null && (policy.model ?? null) !== null ? ', train an adapter (policy.lora)' : '';
  const advice = `name a smaller model${adapter} or take a larger machine: at any batch and context its models alone take about ${gibibytes(least)}`;
  return { ...verdict, advice };
}

/** The settings that save the most memory, for more time. */
const REMEDIES = [
  ['rollout', 'chunk_groups', 1],
  ['optimizer', 'gradient_checkpointing', true],
  ['optimizer', 'per_device_batch_size', 1],
] as const;

/** Adds the estimate with each remedy that the run has not applied yet, and with all of them. */
function withRemedies(
  verdict: MemoryVerdict,
  settings: TrainedSettings,
  bytesOf: (changed: TrainedSettings) => number | null,
): MemoryVerdict {
  if (verdict.fits) return verdict;
  type Sections = Readonly<Record<string, Readonly<Record<string, unknown>> | undefined>>;
  const changedTo = (from: TrainedSettings, section: string, field: string, value: unknown): TrainedSettings => ({
    ...from,
    [section]: { ...(from as unknown as Sections)[section], [field]: value },
  });
  const figures: string[] = [];
  const add = (name: string, changed: TrainedSettings): void => {
    const bytes = bytesOf(changed);
    if (bytes !== null) figures.push(`${name}: ${gibibytes(bytes)}`);
  };
  let all = settings;
  for (const [section, field, value] of REMEDIES) {
    const found = (settings as unknown as Sections)[section];
    if (found === undefined || !(field in found) || found[field] === value) continue;
    add(`${section}.${field}=${value}`, changedTo(settings, section, field, value));
    all = changedTo(all, section, field, value);
  }
  if (figures.length > 1) add('all of these', all);
  return figures.length === 0 ? verdict : { ...verdict, advice: `${verdict.advice ?? ''} (${figures.join(', ')})` };
}

/** What estimates look at: the shapes of models and the sizes of data. */
interface Looked {
  readonly shapeOf: ShapeOf;
  readonly sizes: DataSizes;
}

/** The estimated bytes of one process, and what of it the reward's models take. */
function estimateOf(
  settings: RunSettings,
  devices: Devices,
  { shapeOf, sizes }: Looked,
): Pick<RunMemory, 'device' | 'processes' | 'bytes'> & { readonly own: Devices; readonly reward: number } {
  const device = deviceKind(settings, devices);
  const own = runDevices(settings, devices);
  const processes = processesOf(settings, own, device);
  // Another trainer's memory does not follow from these settings.
  const trains = isTrainable(settings) && settings.launch.command === null;
  const trained = trains ? recipeOf(settings).memory(settings, shapeOf, sizes) : null;
  const reward = trains ? rewardBytes(settings, shapeOf) : 0;
  return { device, own, processes, reward, bytes: trained === null ? null : trained + reward };
}

/**
 * Estimates what runs take of this machine's own memory, in bytes of all their processes: 0 where that is not known, and for a run on GPUs. The shape
 * of a model is known if one of the `runs` makes it.
 */
export function mainMemoryOf(
  runs: ReadonlyMap<string, RunSettings>,
  devices: Devices,
): (settings: RunSettings) => number {
  const looked = { shapeOf: shapesOf(runs), sizes: sizesOnce() };
  return (settings) => {
    const { device, processes, bytes } = estimateOf(settings, devices, looked);
    return device === 'gpu' ? 0 : (bytes ?? 0) * processes;
  };
}

/** Estimates what runs need of a machine. The shape of a model is known if one of the `runs` makes it. */
export function memoryOf(
  runs: ReadonlyMap<string, RunSettings>,
  devices: Devices,
  machine: Memory = machineMemory(),
): (settings: RunSettings) => RunMemory {
  const looked = { shapeOf: shapesOf(runs), sizes: sizesOnce() };
  const { shapeOf, sizes } = looked;
  return (settings) => {
    const { device, own, processes, reward, bytes } = estimateOf(settings, devices, looked);
    const gpus = device === 'gpu' ? own.gpus : [];
    const { placement, devices: allowed } = settings.launch;
    const usable = gpus.filter(({ index }) => allowed === null || allowed.includes(index));
    const placed = placement === null ? null : placedOrNull(placement, usable);
    const verdict = (): MemoryVerdict | null => {
      if (bytes === null) return null;
      if (placement === null || placed === null || !isTrainable(settings)) {
        const found = memoryVerdict(bytes, processes, usable.slice(0, processes), machine, waysToShrink(settings));
        if (!isTrainable(settings)) return found;
        const bytesOfChanged = (changed: TrainedSettings): number | null => {
          const one = recipeOf(changed).memory(changed, shapeOf, sizes);
          return one === null ? null : ((one + reward) * found.neededBytes) / bytes;
        };
        return withLeast(
          withRemedies(found, settings, bytesOfChanged),
          settings,
          found.fits ? null : bytesOfChanged(smallestSettings(settings)),
        );
      }
      const image = recipeOf(settings).imageMemory(settings, shapeOf, sizes);
      const parts = { policy: bytes - image - reward, image, reward };
      return placedVerdict(parts, placed, placement.memory_limit, usable, machine);
    };
    return { device, processes, bytes, verdict: verdict(), placed };
  };
}
