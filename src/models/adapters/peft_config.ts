/**
 * Reads the adapter_config.json of PEFT's LoRA (peft/tuners/lora/config.py). Every key that changes the adapter's
 * result is either read or rejected: loading such an adapter as plain LoRA would give a different model.
 */
import { isDeepStrictEqual } from 'node:util';
import { z } from 'zod';
import { CheckpointError } from '../../core/errors.js';
import type { LoraSettings } from '../../compute/nets/lora.js';
import { PEFT_VERSION, peftDefaults } from './peft_defaults.js';

/** A LoRA adapter as its file describes it. */
export interface StoredLora {
  readonly lora: LoraSettings;
  readonly base: string;
}

/** How to make a readable model from any adapter that only changes weights. */
export const MERGE =
  'Merge it in Python, PeftModel.from_pretrained(base, adapter).merge_and_unload().save_pretrained(folder), and name that folder as the model.';
const RETRAIN = 'Train the adapter without it: it cannot be merged into the weights of its base.';
const REWRITE =
  'In Python, save it again with the unchanged base: save_pretrained(folder, path_initial_model_for_weight_conversion=initial_adapter). Or merge it with merge_and_unload() and name the merged model.';

/** The reason for rejecting a non-default value, and the remedy. */
interface Refusal {
  readonly why: string;
  readonly next: string;
  /** Harmless values in addition to the default, null, false and empty ones. */
  readonly harmless?: readonly unknown[];
}

function refused(why: string, next = MERGE, harmless: readonly unknown[] = []): Refusal {
  return { why, next, harmless };
}

/**
 * The meaning of each key for a trained adapter: it is read, has no effect, or has a non-default value that is
 * rejected.
 */
const keys: Readonly<Record<keyof typeof peftDefaults, 'read' | 'no effect' | Refusal>> = {
  peft_type: 'read',
  base_model_name_or_path: 'read',
  r: 'read',
  lora_alpha: 'read',
  target_modules: 'read',
  use_rslora: 'read',
  exclude_modules: 'read',
  layers_to_transform: 'read',
  layers_pattern: 'read',

  revision: 'no effect',
  task_type: 'no effect',
  auto_mapping: 'no effect',
  peft_version: 'no effect',
  inference_mode: 'no effect',
  lora_dropout: 'no effect',
  // Settings of initializations and modes that other keys choose.
  megatron_core: 'no effect',
  loftq_config: 'no effect',
  eva_config: 'no effect',
  corda_config: 'no effect',
  lora_ga_config: 'no effect',
  qalora_group_size: 'no effect',
  // Changes only the data kept for the gradient, not the result.
  velora_config: 'no effect',

  // These only change the initial A and B over an unchanged base. The methods pissa, olora, corda, loftq and lora_ga also change the base.
  init_lora_weights: refused(
    'its base was changed before training, and the file does not contain the change',
    REWRITE,
    ['gaussian', 'eva', 'orthogonal', 'mica'],
  ),
  bias: refused('the biases of the base were trained, too'),
  lora_bias: refused('the adapter has biases', RETRAIN),
  modules_to_save: refused('whole modules of the base were trained, too'),
  trainable_token_indices: refused('embeddings of the base were trained, too'),
  ensure_weight_tying: refused('the adapter of the output head also changes the embeddings'),
  target_parameters: refused('parameters other than linear layers are adapted'),
  layer_replication: refused('layers of the base occur several times in its model'),
  fan_in_fan_out: refused('the layers of its base have transposed weights'),
  rank_pattern: refused('its layers have several ranks'),
  alpha_pattern: refused('its layers have several scales'),
  use_dora: refused('DoRA has magnitudes in addition to the low-rank product'),
  use_qalora: refused('QA-LoRA pools the inputs of its layers'),
  use_bdlora: refused('its matrices are block-diagonal'),
  kasa_config: refused('KaSA changes the base and has singular values in addition to the low-rank product'),
  monteclora_config: refused('its weights are drawn at random'),
  alora_invocation_tokens: refused('it acts only behind its invocation tokens', RETRAIN),
  arrow_config: refused('a router chooses among adapters', RETRAIN),
  megatron_config: refused("it uses Megatron's layers"),
};

/** The keys whose non-default values are refused. */
export const rejectedKeys: readonly string[] = Object.entries(keys).flatMap(([key, meaning]) =>
  typeof meaning === 'object' ? [key] : [],
);

const oneOrMore = <T extends z.ZodType>(one: T) => z.union([one, z.array(one)]).nullish();

const schema = z.object({
  peft_type: z.literal(peftDefaults.peft_type),
  base_model_name_or_path: z.string().min(1),
  r: z.int().positive().default(peftDefaults.r),
  lora_alpha: z.number().positive().default(peftDefaults.lora_alpha),
  target_modules: z.union([z.string().min(1), z.array(z.string()).min(1)]),
  use_rslora: z.boolean().default(peftDefaults.use_rslora),
  exclude_modules: oneOrMore(z.string()),
  layers_to_transform: oneOrMore(z.int().nonnegative()),
  layers_pattern: oneOrMore(z.string()),
});

/**
 * Raises CheckpointError, naming `where`, for a file that does not describe a LoRA adapter, and for the first key that
 * would change the result.
 */
export function readPeftConfig(json: unknown, where: string): StoredLora {
  if (typeof json === 'object' && json !== null) requireKeys(json as Record<string, unknown>, where);
  const parsed = schema.safeParse(json);
  if (!parsed.success) {
    const [issue] = parsed.error.issues;
    if (issue.path[0] === 'base_model_name_or_path') {
      throw new CheckpointError('the adapter names no base model in base_model_name_or_path', {
        where,
        next: 'Set base_model_name_or_path to the folder, or the name on the Hub, of the model that it was trained over.',
      });
    }
    throw new CheckpointError(`this adapter is not supported: ${issue.path.join('.')}: ${issue.message}`, {
      where,
      next: 'Only LoRA with one rank over linear layers is supported.',
    });
  }
  const { r, lora_alpha, use_rslora, target_modules, base_model_name_or_path, exclude_modules, ...layers } =
    parsed.data;
  const indexes = listOf(layers.layers_to_transform);
  if (indexes.length > 0 && typeof target_modules === 'string') {
    throw new CheckpointError('layers_to_transform requires a list of target_modules, found a regular expression', {
      where,
      next: 'PEFT rejects this too. Name the layers in the expression, and remove layers_to_transform.',
    });
  }
  const patterns = listOf(layers.layers_pattern).filter((pattern) => pattern !== '');
  return {
    lora: {
      rank: r,
      alpha: lora_alpha,
      rslora: use_rslora,
      targets: target_modules,
      ...(isNothing(exclude_modules) ? {} : { excluded: exclude_modules ?? [] }),
      ...(indexes.length === 0 ? {} : { transformed: { indexes, patterns } }),
    },
    base: base_model_name_or_path,
  };
}

function listOf<T>(found: T | T[] | null | undefined): readonly T[] {
  if (found === null || found === undefined) return [];
  return Array.isArray(found) ? found : [found];
}

function requireKeys(json: Readonly<Record<string, unknown>>, where: string): void {
  // Another kind of adapter has other keys, and is rejected for its kind instead.
  if (json.peft_type !== peftDefaults.peft_type) return;
  for (const [key, value] of Object.entries(json)) {
    if (isNothing(value)) continue;
    const shown = `${key}: ${shortened(value)}`;
    if (!isKnown(key)) {
      throw new CheckpointError(`this adapter is not supported: ${shown}: the key is unknown`, {
        where,
        next: `The keys of peft ${PEFT_VERSION} are known. Remove the key if it has no effect on the trained adapter; otherwise: ${MERGE}`,
      });
    }
    const meaning = keys[key];
    if (meaning === 'read' || meaning === 'no effect') continue;
    if (isDeepStrictEqual(value, peftDefaults[key]) || meaning.harmless?.includes(value) === true) continue;
    throw new CheckpointError(`this adapter is not supported: ${shown}: ${meaning.why}`, { where, next: meaning.next });
  }
}

function isKnown(key: string): key is keyof typeof peftDefaults {
  return Object.hasOwn(peftDefaults, key);
}

/** Null, false, or empty: values that request nothing. */
function isNothing(value: unknown): boolean {
  if (value === null || value === undefined || value === false || value === '') return true;
  return typeof value === 'object' && Object.keys(value).length === 0;
}

/** A value on one line, shortened if it is long. */
function shortened(value: unknown): string {
  const text = JSON.stringify(value);
  return text.length > 60 ? `${text.slice(0, 60)}…` : text;
}
