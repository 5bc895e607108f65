/** Adapters over frozen weights in the files of PEFT: `adapter_config.json` and `adapter_model.safetensors`. */
import { existsSync, readFileSync } from 'node:fs';
import { join, sep } from 'node:path';
import { z } from 'zod';
import { digestOfFileSync } from '../../core/digest.js';
import { CheckpointError, must } from '../../core/errors.js';
import { sha256 } from '../../core/image.js';
import { readSafetensorsIndex, type FloatTensor } from '../../core/safetensors.js';
import type { WeightsLayout } from '../../engines/onnx/trained_weights.js';
import { CONFIG_FILE, readJson, readWeights, tensorFiles, tensorsOf, type Weights } from '../../models/files.js';
import { blobDigest, cachedModel, cachedSnapshot, hubBaseOf, hubModelAt } from '../../models/hub/cache.js';
import { describeDecoder, openDecoder } from '../../nets/decoder/files.js';
import { decoderAdapter, withAdapter, type DecoderConfig } from '../../nets/decoder/config.js';
import { initAdapter, isAdapters, type Adapter, type LoraSettings } from '../../nets/lora.js';
import type { AdapterOrigin, PolicyModel } from './model.js';

export const ADAPTER_CONFIG_FILE = 'adapter_config.json';
export const ADAPTER_FILE = 'adapter_model.safetensors';
/** Before a parameter's name in PEFT's files. */
const PREFIX = 'base_model.model.';

/** In the header of the adapter's weights: the digest of those that it stands on. */
const BASE_DIGEST = 'base_model_sha256';

const stored = (name: string): string => `${PREFIX}${name}`;

export function adapterLayout({ adapter }: AdaptedModel): WeightsLayout {
  return { file: ADAPTER_FILE, stored, metadata: { format: 'pt', [BASE_DIGEST]: adapter.baseDigest } };
}

/** A model of frozen weights with an adapter. */
export type AdaptedModel = PolicyModel & {
  readonly config: { readonly adapter: Adapter };
  readonly adapter: AdapterOrigin;
};

export function isAdapted(model: PolicyModel): model is AdaptedModel {
  return model.config.adapter !== undefined && model.adapter !== undefined;
}

/** Whether a folder holds an adapter alone. */
export function holdsAdapter(folder: string): boolean {
  return existsSync(join(folder, ADAPTER_CONFIG_FILE));
}

/** The starting weights: the model without what its adapter adds, which shares the frozen ones; a copy of all where there is no adapter. */
export function referenceWeights({ config, weights }: PolicyModel): Weights {
  const kept = ([name, { shape, data }]: [string, { shape: readonly number[]; data: Float32Array }]) => {
    if (config.adapter === undefined) return { shape, data: data.slice() };
    // B = 0 adds nothing, whatever A is.
    return name.endsWith('.lora_B.weight') ? { shape, data: new Float32Array(data.length) } : { shape, data };
  };
  return new Map([...weights].map((entry) => [entry[0], kept(entry)]));
}

/** A decoder with a fresh adapter, or with the one that `from` holds. */
export function adapt(
  config: DecoderConfig,
  frozen: Weights,
  lora: LoraSettings,
  start: { readonly seed: number } | { readonly from: string },
): { readonly config: DecoderConfig & { readonly adapter: Adapter }; readonly weights: Weights } {
  const adapted = withAdapter(config, lora);
  const weights =
    'seed' in start
      ? initAdapter(adapted.adapter, (name) => must(frozen.get(name), name).shape, start.seed)
      : adapterWeights(start.from, adapted);
  return { config: adapted, weights: new Map([...frozen, ...weights]) };
}

/** The weights of a folder's adapter, by the names that its model has for them. Raises CheckpointError as `readWeights`. */
export function adapterWeights(folder: string, adapted: DecoderConfig & { readonly adapter: Adapter }): Weights {
  return readWeights(tensorsOf(join(folder, ADAPTER_FILE)), decoderAdapter(adapted), stored);
}

/** PEFT's description of an adapter. */
export function adapterConfigJson({ adapter: { lora, base } }: AdaptedModel): string {
  const { rank, alpha, rslora, targets } = lora;
  const hub = hubModelAt(base);
  const json = {
    peft_type: 'LORA',
    task_type: 'CAUSAL_LM',
    // Others have the Hub's model elsewhere.
    base_model_name_or_path: hub?.hub ?? base,
    ...(hub === null ? {} : { revision: hub.revision }),
    r: rank,
    lora_alpha: alpha,
    target_modules: targets,
    lora_dropout: 0,
    bias: 'none',
    use_rslora: rslora,
    fan_in_fan_out: false,
    inference_mode: true,
    modules_to_save: null,
  };
  return `${JSON.stringify(json, null, 2)}\n`;
}

const configSchema = z.object({
  peft_type: z.literal('LORA'),
  base_model_name_or_path: z.string().min(1),
  r: z.int().positive().default(8),
  lora_alpha: z.number().positive().default(8),
  target_modules: z.union([z.string(), z.array(z.string())]),
  use_rslora: z.boolean().default(false),
  use_dora: z.literal(false).nullish(),
  bias: z.literal('none').default('none'),
  modules_to_save: z.union([z.null(), z.array(z.never())]).optional(),
  rank_pattern: z.object({}).strict().optional(),
  alpha_pattern: z.object({}).strict().optional(),
});

/** What a folder's adapter is, and on what it stands; the digest is null where the file names none. Raises CheckpointError for an adapter that is not covered. */
export function readAdapterConfig(folder: string): Omit<AdapterOrigin, 'baseDigest'> & { baseDigest: string | null } {
  return {
    ...describeAdapter(folder),
    baseDigest: readSafetensorsIndex(join(folder, ADAPTER_FILE)).metadata[BASE_DIGEST] ?? null,
  };
}

/** As `readAdapterConfig`, of an adapter whose weights need not be there yet. */
function describeAdapter(folder: string): Omit<AdapterOrigin, 'baseDigest'> {
  const where = join(folder, ADAPTER_CONFIG_FILE);
  const parsed = configSchema.safeParse(readJson(where));
  if (!parsed.success) {
    const [issue] = parsed.error.issues;
    throw new CheckpointError(`this adapter is not covered: ${issue.path.join('.')}: ${issue.message}`, {
      where,
      next: 'Covered is LoRA of one rank over linear layers, without biases, DoRA or modules that are saved whole.',
    });
  }
  const { r, lora_alpha, use_rslora, target_modules, base_model_name_or_path } = parsed.data;
  return {
    lora: { rank: r, alpha: lora_alpha, rslora: use_rslora, targets: target_modules },
    base: base_model_name_or_path,
  };
}

/** SHA-256 over the digests of the files that hold a folder's weights, its adapter's included, in the order of their names. */
export function digestOfWeights(folder: string): string {
  if (holdsAdapter(folder)) {
    return sha256(`${digestOfWeights(baseOf(folder))} ${digestOf(join(folder, ADAPTER_FILE))}`);
  }
  const files = [...new Set(tensorFiles(folder).values())].sort();
  return sha256(files.map(digestOf).join(' '));
}

/** The Hub's cache calls a large file by its digest, which was looked at when it was fetched: it need not be read again. */
function digestOf(path: string): string {
  return blobDigest(path) ?? digestOfFileSync(path);
}

/** A model's settings and weights; those of an adapter's folder are its base's with what the adapter adds. */
export interface OpenedModel {
  readonly config: DecoderConfig;
  readonly weights: Weights;
}

/** What a folder's config.json says, or that of its adapter's base. Raises as `openModel`, but for the weights. */
export function describeModel(folder: string): DecoderConfig {
  return holdsAdapter(folder) ? describeModel(baseOf(folder)) : describeDecoder(folder).config;
}

/**
 * The folder of an adapter's base: where the file says, or, of a checkpoint whose folder of runs was moved, the run beside its own; or the Hub's
 * model in the cache. Raises CheckpointError where it is in none of these places. Whether it is the right one its digest tells.
 */
export function baseOf(folder: string): string {
  const { base } = describeAdapter(folder);
  const hub = hubBaseOf(folder);
  const beside = join(folder, '..', '..', '..', ...base.split(sep).slice(-PLACE_OF_CHECKPOINT));
  const found = hub === null ? [base, beside].find(existsSync) : cachedSnapshot(hub);
  if (found !== null && found !== undefined) return found;
  throw new CheckpointError(`the adapter stands on ${base}, which is not there`, {
    where: join(folder, ADAPTER_CONFIG_FILE),
    next:
      hub === null
        ? 'Bring the base model back, or correct base_model_name_or_path.'
        : 'It is a model of the Hub that is not in the cache: `editrl run` with this adapter as a model downloads it, or set HF_HUB_CACHE to the cache that has it.',
  });
}

/** The folder that a chain of adapters stands on; `folder` itself where it holds none. Raises as `baseOf`. */
export function rootOf(folder: string): string {
  return holdsAdapter(folder) ? rootOf(baseOf(folder)) : folder;
}

/** Whether a chain of adapters stands on a model of the Hub that is not in the cache (yet). */
export function lacksHubBase(folder: string): boolean {
  if (!holdsAdapter(folder)) return false;
  const hub = hubBaseOf(folder);
  return (hub !== null && cachedModel(hub, 'model') === null) || lacksHubBase(baseOf(folder));
}

/** A checkpoint is `RUN/checkpoints/ITERATION` in the folder of runs. */
const PLACE_OF_CHECKPOINT = 3;

/** The text of the config.json that `describeModel` reads. */
export function descriptionOf(folder: string): string {
  return holdsAdapter(folder) ? descriptionOf(baseOf(folder)) : readFileSync(join(folder, CONFIG_FILE), 'utf8');
}

/** Raises as `openDecoder`, and CheckpointError where an adapter's base is not what it was trained on. */
export function openModel(folder: string): OpenedModel {
  if (!holdsAdapter(folder)) return openDecoder(folder);
  const base = baseOf(folder);
  const { lora, baseDigest } = readAdapterConfig(folder);
  refuseOtherBase(folder, baseDigest, digestOfWeights(base));
  const frozen = openModel(base);
  const { config, weights } = adapt(frozen.config, frozen.weights, lora, { from: folder });
  return { config: frozen.config, weights: merged(config.adapter, weights) };
}

/** An adapter is worth nothing on other weights than those that it was trained on. A digest of null is not known. */
export function refuseOtherBase(folder: string, recorded: string | null, found: string): void {
  if (recorded === null || recorded === found) return;
  throw new CheckpointError('the adapter was trained on other weights than its base holds now', {
    where: join(folder, ADAPTER_FILE),
    next: `Bring back the weights whose digest is ${recorded.slice(0, 12)}…; found ${found.slice(0, 12)}….`,
  });
}

/** W + s B A for every layer that is adapted; the frozen weights are changed in place. */
function merged(adapter: Adapter, weights: Weights): Weights {
  for (const layer of adapter.layers) mergeLayer(adapter, layer, must(weights.get(`${layer}.weight`), layer), weights);
  return new Map([...weights].filter(([name]) => !isAdapters(name)));
}

/** W + s B A for one layer's weights [out, in], which are changed in place. */
export function mergeLayer(
  { rank, scale }: Adapter,
  layer: string,
  { shape, data }: FloatTensor,
  adapters: Weights,
): void {
  const a = must(adapters.get(`${layer}.lora_A.weight`), layer).data;
  const b = must(adapters.get(`${layer}.lora_B.weight`), layer).data;
  const [outputs, inputs] = shape;
  for (let o = 0; o < outputs; o++) {
    const row = data.subarray(o * inputs, (o + 1) * inputs);
    for (let k = 0; k < rank; k++) {
      const factor = scale * b[o * rank + k];
      for (let i = 0; i < inputs; i++) row[i] += factor * a[k * inputs + i];
    }
  }
}
