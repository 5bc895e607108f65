/** Which GPU computes which part of a run: its policy, its image model, its reward. */
import { ConfigError } from '../../core/errors.js';
import type { LaunchSettings } from '../../config/schema/launch.js';
import type { Gpu } from './devices.js';

export const placedParts = ['policy', 'image', 'reward'] as const;
export type PlacedPart = (typeof placedParts)[number];

export interface PlacedParts {
  /** By part, its GPU's index in nvidia-smi; null for the CPU. */
  readonly devices: Readonly<Record<PlacedPart, number | null>>;
  /** The GPUs it uses, ascending. */
  readonly gpus: readonly number[];
  /** A sentence about what was done instead of what the settings say; null if they were followed. */
  readonly note: string | null;
}

type PlacementSettings = NonNullable<LaunchSettings['placement']>;

/**
 * Assigns each part a GPU among those that the run may use. If there are fewer GPUs than the settings name, parts share the existing ones. Raises
 * ConfigError for a GPU that does not exist although there are enough others.
 */
export function placeParts(wanted: PlacementSettings, gpus: readonly Pick<Gpu, 'index' | 'name'>[]): PlacedParts {
  const named: Readonly<Record<PlacedPart, number>> = {
    policy: wanted.policy,
    image: wanted.image ?? wanted.policy,
    reward: wanted.reward ?? wanted.policy,
  };
  const distinct = [...new Set(Object.values(named))].sort((a, b) => a - b);
  const known = gpus.map(({ index }) => index);
  if (distinct.every((index) => known.includes(index))) return { devices: named, gpus: distinct, note: null };
  if (gpus.length >= distinct.length) throw noSuchGpu(named, gpus);
  const given = (part: PlacedPart): number | null =>
    gpus.length === 0 ? null : known[distinct.indexOf(named[part]) % known.length];
  const devices = { policy: given('policy'), image: given('image'), reward: given('reward') };
  const used = [...new Set(Object.values(devices))].filter((index) => index !== null).sort((a, b) => a - b);
  const note = `launch.placement names ${distinct.length} GPU${distinct.length === 1 ? '' : 's'} (${distinct.join(', ')}), and the run has ${gpus.length === 0 ? 'none' : gpus.length}: ${describeParts(devices)}`;
  return { devices, gpus: used, note };
}

/** Where each part is, in words. */
export function describeParts(devices: PlacedParts['devices']): string {
  return placedParts
    .map((part) => `${part} on ${devices[part] === null ? 'the CPU' : `GPU ${devices[part]}`}`)
    .join(', ');
}

/** Each part's index among the GPUs visible to the run's process; parts on the CPU are left out. */
export function deviceIndices({ devices, gpus }: PlacedParts): Partial<Record<PlacedPart, number>> {
  return Object.fromEntries(
    placedParts.flatMap((part) => {
      const index = devices[part];
      return index === null ? [] : [[part, gpus.indexOf(index)] as const];
    }),
  );
}

/** Raises ConfigError when a run has several processes, which divide its GPUs among themselves. */
export function checkPlacement({ placement, processes }: Pick<LaunchSettings, 'placement' | 'processes'>): void {
  if (placement === null || processes === 1) return;
  throw new ConfigError(`the parts of one process are placed, and launch.processes is ${processes}`, {
    where: 'launch.placement',
    next: 'Set launch.processes to 1, or launch.placement to null.',
  });
}

/** Raises ConfigError for a run in a sweep on this machine's GPUs with placed parts: concurrent runs would use the same GPUs. */
export function refusePlacedParts(
  run: string,
  { placement, backend, command }: Pick<LaunchSettings, 'placement' | 'backend' | 'command'>,
): void {
  if (placement === null || backend === 'slurm' || command !== null) return;
  throw new ConfigError(`the parts of ${run} are placed on GPUs, and a sweep gives each of its runs a GPU itself`, {
    where: 'launch.placement',
    next: "Set launch.placement to null in the experiment, or start its runs one by one with 'editrl run'.",
  });
}

function noSuchGpu(
  named: Readonly<Record<PlacedPart, number>>,
  gpus: readonly Pick<Gpu, 'index' | 'name'>[],
): ConfigError {
  const missing = placedParts.filter((part) => !gpus.some(({ index }) => index === named[part]));
  const usable = gpus.map(({ index, name }) => `${index} (${name})`).join(', ');
  return new ConfigError(
    `${missing.map((part) => `${part} is placed on GPU ${named[part]}`).join(', ')}, which the run may not use or is not there; usable: ${usable}`,
    { where: 'launch.placement', next: 'Name GPUs that exist and that launch.devices allows.' },
  );
}
