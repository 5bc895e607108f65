/** Estimates the memory that runs need. */
import { largestImage } from '../../data/inpainting.js';
import { sourceSizes } from '../../data/image_edits.js';
import { frozenBytes, type DataSizes, type ShapeOf } from '../../recipes/shared/memory.js';
import { isTrainable } from '../../config/recipes.js';
import { recipeOf, rewardOf } from '../../recipes/settings.js';
import { chosenTerms } from '../../rewards/score/choice.js';
import type { ModelReference } from '../../config/schema/model.js';
import { EditrlError } from '../../core/errors.js';
import { getPath } from '../../core/schema/walk.js';
import type { RunSettings } from '../../config/schema/run.js';
import { deviceKind, processesOf, runDevices, type DeviceKind, type Devices, type Gpu } from './devices.js';
import { machineMemory, memoryVerdict, placedVerdict, type Memory, type MemoryVerdict } from './memory.js';
import { placeParts, type PlacedParts } from './placement.js';

export interface RunMemory {
  readonly device: DeviceKind;
  readonly processes: number;
  /** Estimated bytes of one process. Null if the settings do not determine it. */
  readonly bytes: number | null;
  /** Whether it fits. Null if the settings do not determine it. */
  readonly verdict: () => MemoryVerdict | null;
  /** The GPUs of its parts. Null without `launch.placement`, or if its GPUs do not exist. */
  readonly placed: PlacedParts | null;
}

/** The memory that a run needs, from its settings. */
export type MemoryModel = (settings: RunSettings) => RunMemory;

/**
 * Estimates the memory that runs need on a machine.
 * @param shapeOf the shapes of the models that they name
 */
export function memoryOf(shapeOf: ShapeOf, devices: Devices, machine: Memory = machineMemory()): MemoryModel {
  const sizes: DataSizes = { largest: once(largestImage), shown: once(sourceSizes) };
  return (settings) => {
    const device = deviceKind(settings, devices);
    const own = runDevices(settings, devices);
    const processes = processesOf(settings, own, device);
    const gpus = device === 'gpu' ? own.gpus : [];
    const { placement, devices: allowed, command } = settings.launch;
    const usable = gpus.filter(({ index }) => allowed === null || allowed.includes(index));
    const placed = placement === null ? null : placedOrNull(placement, usable);
    // A foreign trainer's memory does not follow from these settings.
    const trained = isTrainable(settings) && command === null ? settings : null;
    const policy = trained === null ? null : recipeOf(trained).memory(trained, shapeOf, sizes);
    if (trained === null || policy === null) return { device, processes, bytes: null, verdict: () => null, placed };
    const reward = rewardBytes(trained, shapeOf);
    const bytes = policy + reward;
    const verdict = (): MemoryVerdict => {
      if (placement === null || placed === null) {
        return memoryVerdict(bytes, processes, usable.slice(0, processes), machine, waysToShrink(trained));
      }
      const image = recipeOf(trained).imageMemory(trained, shapeOf, sizes);
      const parts = { policy: policy - image, image, reward };
      return placedVerdict(parts, placed, placement.memory_limit, usable, machine);
    };
    return { device, processes, bytes, verdict, placed };
  };
}

/** Bytes of the machine's main memory for all processes of a run. 0 if that is unknown, or if it computes on GPUs. */
export function mainMemory({ device, processes, bytes }: RunMemory): number {
  return device === 'gpu' ? 0 : (bytes ?? 0) * processes;
}

/** Null for an impossible placement, which the check of placements reports. */
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

/** A function of one argument, computed once for each value. */
function once<A, T>(compute: (at: A) => T): (at: A) => T {
  const known = new Map<string, { readonly is: T }>();
  return (at) => {
    const key = JSON.stringify(at);
    const found = known.get(key) ?? { is: compute(at) };
    known.set(key, found);
    return found.is;
  };
}

/** Memory of the models of a reward's terms, beside the policy. */
function rewardBytes(settings: RunSettings, shapeOf: ShapeOf): number {
  const reward = rewardOf(settings);
  if (reward === null) return 0;
  const models = chosenTerms(reward).map(({ fields }) => (fields['model'] ?? null) as ModelReference | null);
  const distinct = new Map(models.map((model) => [JSON.stringify(model), model]));
  return [...distinct.values()].reduce((sum, model) => sum + frozenBytes(model, shapeOf), 0);
}

/** Settings that make a run smaller, among those that it has. */
function waysToShrink(settings: RunSettings): string {
  const keys = ['optimizer.per_device_batch_size', 'rollout.chunk_groups', 'policy.model_context_size'];
  const lower = [...keys, 'launch.processes'].filter((key) => getPath(settings, key) !== undefined);
  const checkpointing = getPath(settings, 'optimizer.gradient_checkpointing') === false;
  // Adapters need pretrained base weights.
  const adapter = getPath(settings, 'policy.lora') === null && (getPath(settings, 'policy.model') ?? null) !== null;
  return [
    `lower ${lower.join(', ')}`,
    ...(checkpointing ? ['set optimizer.gradient_checkpointing to true'] : []),
    ...(adapter ? ['train an adapter (policy.lora)'] : []),
    'or name a smaller model',
  ].join(', ');
}
