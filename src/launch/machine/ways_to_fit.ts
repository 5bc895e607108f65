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
  /** As `--set` takes it; it may depend on the settings that it is about to change. */
  readonly set: string | ((settings: TrainedSettings) => string);
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

/** What holds frozen weights in half of the memory: those beside the adapter of a decoder, which also has packed weights, or of an image model. */
const HALVES: Way = {
  set: 'policy.engine.dtype=float16',
  change: (settings) => {
    const { policy, rollout } = settings as {
      readonly policy?: { readonly lora?: unknown; readonly train?: unknown; readonly engine?: object };
      readonly rollout?: object;
    };
    const isDecoders = (policy?.lora ?? null) !== null && rollout !== undefined && 'packed_weights' in rollout;
    const isImageModels = policy?.train === 'adapter' || policy?.train === 'lora';
    if (!isDecoders && !isImageModels) return null;
    return withValue(settings, 'policy', 'engine', { ...policy?.engine, dtype: 'float16' });
  },
};

/** The model that the policy starts from; null for random weights. */
function modelOf(settings: TrainedSettings): unknown {
  return (settings as { readonly policy?: { readonly model?: unknown } }).policy?.model ?? null;
}

const SERVER = 'http://HOST:8000';

/** What has a vLLM sample: neither caches nor packed weights are held here. */
const VLLM: Way = {
  set: `rollout.engine={"type":"vllm","base_url":"${SERVER}/v1"}`,
  change: (settings) => {
    const { rollout } = settings as { readonly rollout?: { readonly engine?: unknown } };
    // Random weights are in no folder that it could be started with.
    if (rollout?.engine !== null || modelOf(settings) === null) return null;
    return withValue(settings, 'rollout', 'engine', { type: 'vllm', base_url: `${SERVER}/v1`, serve: null });
  },
};

/** What has a training server sample and train an adapter: the policy is not held here. */
const TINKER: readonly Way[] = [
  {
    set: `policy.trainer={"type":"tinker","base_url":"${SERVER}","base_model":"NAME"}`,
    change: (settings) => {
      const { policy } = settings as { readonly policy?: { readonly trainer?: { readonly type: string } } };
      if (policy?.trainer?.type !== 'onnx' || !('tokenizer' in policy) || modelOf(settings) === null) return null;
      const trainer = { type: 'tinker', base_url: SERVER, base_model: 'NAME', serve: null };
      return withValue(settings, 'policy', 'trainer', trainer);
    },
  },
  {
    set: (settings) => {
      const model = modelOf(settings);
      return `policy.tokenizer=${typeof model === 'string' ? model : JSON.stringify(model)}`;
    },
    change: (settings) => {
      const { policy } = settings as { readonly policy?: { readonly tokenizer?: unknown } };
      return policy?.tokenizer === null ? withValue(settings, 'policy', 'tokenizer', modelOf(settings)) : null;
    },
  },
  { set: 'policy.model=null', change: (settings) => withValue(settings, 'policy', 'model', null) },
  { set: 'policy.lora=null', change: (settings) => withValue(settings, 'policy', 'lora', null) },
  {
    set: 'policy.engine.dtype=float32',
    change: (settings) => {
      const { policy } = settings as { readonly policy?: { readonly engine?: { readonly dtype?: string } } };
      if (policy?.engine?.dtype !== 'float16') return null;
      return withValue(settings, 'policy', 'engine', { ...policy.engine, dtype: 'float32' });
    },
  },
  { set: 'rollout.engine=null', change: (settings) => withValue(settings, 'rollout', 'engine', null) },
  { set: 'launch.processes=1', change: (settings) => withValue(settings, 'launch', 'processes', 1) },
];

/** In the order in which they are tried, in this process alone. */
const TRIED: readonly (readonly Way[])[] = [
  ...SLOWER.map((way) => [way]),
  SLOWER,
  [HALVES],
  [HALVES, ...SLOWER],
  [ADAPTER],
  [ADAPTER, ...SLOWER],
  [ADAPTER, HALVES, ...SLOWER],
];

/** The same where a vLLM samples. */
const SAMPLED_ELSEWHERE: readonly (readonly Way[])[] = [[], ...TRIED].map((ways) => [VLLM, ...ways]);

/** What estimates a run's bytes, and whether its recipe allows the settings. */
export interface Estimator {
  readonly bytesOf: (changed: TrainedSettings) => number | null;
  readonly isAllowed: (changed: TrainedSettings) => boolean;
}

/**
 * What to set so that a run fits into `free` bytes, in words, with the bytes that it then takes: in this process, the first of one setting that changes nothing
 * that is learnt, all of those, half precision for what stays frozen, and an adapter in place of all weights; the least of those with vLLM
 * sampling; and a training server. Null where none of that does.
 */
export function wayToFit(settings: TrainedSettings, estimator: Estimator, free: number): string | null {
  const { bytesOf, isAllowed } = estimator;
  const tried = (ways: readonly Way[], besides: string): string | null => {
    let changed = settings;
    const sets: string[] = [];
    for (const [i, { set, change }] of ways.entries()) {
      const next = change(changed);
      // The first of them is what the others are about.
      if (next === null && i === 0 && besides !== '') return null;
      if (next === null) continue;
      sets.push(typeof set === 'string' ? set : set(changed));
      changed = next;
    }
    if (sets.length === 0 || !isAllowed(changed)) return null;
    const bytes = bytesOf(changed);
    return bytes === null || bytes > free ? null : `with ${sets.join(' and ')} it takes ${gibibytes(bytes)}${besides}`;
  };
  const first = (all: readonly (readonly Way[])[], besides = ''): string | null => {
    for (const ways of all) {
      const found = tried(ways, besides);
      if (found !== null) return found;
    }
    return null;
  };
  const found = [
    first(TRIED),
    first(SAMPLED_ELSEWHERE, ', and vLLM has its own'),
    first([TINKER], ', and the training server has the policy'),
  ].filter((way) => way !== null);
  return found.length === 0 ? null : found.join('; or ');
}
