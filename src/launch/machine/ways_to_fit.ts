/** Settings by which a run that does not fit into memory would. Pure. */
import type { TrainedSettings } from '../../schema/run.js';
import { gibibytes } from './devices.js';

type Changed = TrainedSettings | null;

/** A section with a value in place of another; null where the run has no such field, or has the value already. */
function withValue(settings: TrainedSettings, section: string, field: string, value: unknown): Changed {
  const found = (settings as unknown as Readonly<Record<string, object | undefined>>)[section];
  if (found === undefined || !(field in found)) return null;
  if (JSON.stringify((found as Readonly<Record<string, unknown>>)[field]) === JSON.stringify(value)) return null;
  return { ...settings, [section]: { ...found, [field]: value } };
}

interface Way {
  /** As `--set` takes it. */
  readonly set: string;
  readonly change: (settings: TrainedSettings) => Changed;
}

/** What changes nothing that is learnt, but takes more time. */
const SLOWER: readonly Way[] = [
  { set: 'rollout.chunk_groups=1', change: (settings) => withValue(settings, 'rollout', 'chunk_groups', 1) },
  {
    set: 'optimizer.gradient_checkpointing=true',
    change: (settings) => withValue(settings, 'optimizer', 'gradient_checkpointing', true),
  },
  {
    set: 'optimizer.per_device_batch_size=1',
    change: (settings) => withValue(settings, 'optimizer', 'per_device_batch_size', 1),
  },
];

const LORA = { rank: 16, alpha: 32, rslora: false, targets: 'all-linear' };

/** What trains an adapter in place of all weights. */
const ADAPTER: Way = {
  set: 'policy.lora={"rank":16,"alpha":32}',
  change: (settings) => {
    const { policy } = settings as { readonly policy?: { readonly lora?: unknown; readonly init?: unknown } };
    // Random weights are no base for an adapter.
    if (policy?.lora !== null || (policy.init ?? null) !== null) return null;
    return withValue(settings, 'policy', 'lora', LORA);
  },
};

/** What holds an adapter's frozen weights in half of the memory; for decoders alone, which also have packed weights. */
const HALVES: Way = {
  set: 'policy.engine.dtype=float16',
  change: (settings) => {
    const { policy, rollout } = settings as {
      readonly policy?: { readonly lora?: unknown; readonly engine?: object };
      readonly rollout?: object;
    };
    if ((policy?.lora ?? null) === null || rollout === undefined || !('packed_weights' in rollout)) return null;
    return withValue(settings, 'policy', 'engine', { ...policy?.engine, dtype: 'float16' });
  },
};

/** In the order in which they are tried. */
const TRIED: readonly (readonly Way[])[] = [
  ...SLOWER.map((way) => [way]),
  SLOWER,
  [HALVES],
  [HALVES, ...SLOWER],
  [ADAPTER],
  [ADAPTER, ...SLOWER],
  [ADAPTER, HALVES, ...SLOWER],
];

/**
 * What to set so that a run fits into `free` bytes, as one sentence with the bytes that it then takes: one setting that changes nothing that is learnt,
 * else all of those, else half precision for what an adapter leaves frozen, else an adapter in place of all weights. Null where none of that does.
 * `bytesOf` estimates a run.
 */
export function wayToFit(
  settings: TrainedSettings,
  bytesOf: (changed: TrainedSettings) => number | null,
  free: number,
): string | null {
  const tried = (ways: readonly Way[]): string | null => {
    let changed = settings;
    const sets: string[] = [];
    for (const { set, change } of ways) {
      const next = change(changed);
      if (next === null) continue;
      changed = next;
      sets.push(set);
    }
    const bytes = sets.length === 0 ? null : bytesOf(changed);
    return bytes === null || bytes > free ? null : `with ${sets.join(' and ')} it takes ${gibibytes(bytes)}`;
  };
  for (const ways of TRIED) {
    const found = tried(ways);
    if (found !== null) return found;
  }
  return null;
}
