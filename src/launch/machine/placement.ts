/** The GPUs of the parts of a run: its policy, its image model, its reward. */
import { ConfigError } from '../../core/errors.js';
import type { LaunchSettings } from '../../config/schema/launch.js';
import type { Gpu } from './devices.js';

export const placedParts = ['policy', 'image', 'reward'] as const;
export type PlacedPart = (typeof placedParts)[number];

export interface PlacedParts {
  /** The nvidia-smi index of each part's GPU. Null for the CPU. */
  readonly devices: Readonly<Record<PlacedPart, number | null>>;
  /** The used GPUs, ascending. */
  readonly gpus: readonly number[];
  /** A sentence if the placement differs from the settings. Else null. */
  readonly note: string | null;
}

type PlacementSettings = NonNullable<LaunchSettings['placement']>;

/**
 * Assigns a GPU to each part, among the GPUs that the run may use. If there are fewer GPUs than the settings name, parts share the existing ones. Raises
 * ConfigError for a GPU that does not exist if there are enough others.
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

/** The device of each part, in words. */
export function describeParts(devices: PlacedParts['devices']): string {
  return placedParts
    .map((part) => `${part} on ${devices[part] === null ? 'the CPU' : `GPU ${devices[part]}`}`)
    .join(', ');
}

/** The index of each part's GPU among those visible to the process. Parts on the CPU are left out. */
export function deviceIndices({ devices, gpus }: PlacedParts): Partial<Record<PlacedPart, number>> {
  return Object.fromEntries(
    placedParts.flatMap((part) => {
      const index = devices[part];
      return index === null ? [] : [[part, gpus.indexOf(index)] as const];
    }),
  );
}

/** Raises ConfigError for a placement with several processes, which divide the GPUs among themselves. */
export function checkPlacement({ placement, processes }: Pick<LaunchSettings, 'placement' | 'processes'>): void {
  if (placement === null || processes === 1) return;
  throw new ConfigError(`found a placement with launch.processes ${processes}; allowed: 1`, {
    where: 'launch.placement',
    next: 'Set launch.processes to 1, or launch.placement to null.',
  });
}

/** Raises ConfigError for a run with a placement in a sweep on this machine: concurrent runs would use the same GPUs. */
export function refusePlacedParts(
  run: string,
  { placement, backend, command }: Pick<LaunchSettings, 'placement' | 'backend' | 'command'>,
): void {
  if (placement === null || backend === 'slurm' || command !== null) return;
  throw new ConfigError(`${run} has a placement, but a sweep assigns GPUs to its runs itself`, {
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
    `${missing.map((part) => `${part} is placed on GPU ${named[part]}`).join(', ')}, which does not exist or is not allowed; usable: ${usable}`,
    { where: 'launch.placement', next: 'Name GPUs that exist and that launch.devices allows.' },
  );
}
