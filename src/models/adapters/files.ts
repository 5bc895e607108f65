/**
 * Files of adapters over frozen weights: `adapter_config.json`, which names the base that they were trained on, and
 * `adapter_model.safetensors`. LoRA has the format of PEFT. An IP-Adapter has a format of this program, with diffusers'
 * names for its layers.
 */
import { existsSync, statSync } from 'node:fs';
import { basename, join, sep } from 'node:path';
import { z } from 'zod';
import { digestOfFileSync } from '../../core/digest.js';
import { CheckpointError, must } from '../../core/errors.js';
import { readTextFile } from '../../core/text.js';
import { writable } from '../../core/half.js';
import { sha256 } from '../../core/images/image.js';
import { readSafetensors, readSafetensorsIndex, type FloatTensor } from '../../core/safetensors.js';
import type { WeightsLayout } from '../trained_weights.js';
import {
  checkWeights,
  CONFIG_FILE,
  readJson,
  readWeights,
  requireHere,
  tensorFiles,
  tensorsOf,
  type TensorFiles,
  type Weights,
} from '../files.js';
import { blobDigest, cachedModel, cachedSnapshot, hubBaseOf, hubModelAt } from '../hub/cache.js';
import { ipAdapterSchema, type IpAdapterConfig } from '../../compute/nets/flow/config.js';
import { isAdapters, type Adapter, type LoraSettings, type ModuleNames } from '../../compute/nets/lora.js';
import { DIFFUSERS_LORA_FILE, DIFFUSERS_LORA_TENSOR, diffusersLoraConfig, inDiffusers } from './diffusers_lora.js';
import { MERGE, readPeftConfig, type StoredLora } from './peft_config.js';

export const ADAPTER_CONFIG_FILE = 'adapter_config.json';
export const ADAPTER_FILE = 'adapter_model.safetensors';
/** Prefix of a parameter's name in PEFT's files. */
const PREFIX = 'base_model.model.';

/** A tensor of a LoRA adapter: its layer, and which of both matrices. Some savers keep the adapter's name before `weight`. */
const LORA_TENSOR = /^base_model\.model\.(.+)\.(lora_[AB])(?:\.[^.]+)?\.weight$/;
/** Without this prefix, PEFT does not load a tensor. */
const BARE_TENSOR = /^(?!base_model\.model\.).+\.lora_[AB](?:\.[^.]+)?\.weight$/;
/** An adapter as a pickle. */
const PICKLE = 'adapter_model.bin';

/** In the header of the adapter's weights: the digest of the base's weights. */
const BASE_DIGEST = 'base_model_sha256';

const same: ModuleNames = (name) => name;

/** Names of a LoRA adapter's parameters in PEFT's files. */
function inPeft(names: ModuleNames): ModuleNames {
  return (name) => `${PREFIX}${names(name)}`;
}

/** The frozen weights that an adapter was trained on. */
export interface AdapterBase {
  /** Their folder. */
  readonly base: string;
  /** SHA-256 of their files. */
  readonly baseDigest: string;
}

/** The trained part on top of a base. */
export type TrainedAdapter =
  | { readonly kind: 'lora'; readonly lora: LoraSettings }
  | { readonly kind: 'image_prompt'; readonly config: IpAdapterConfig };

/** The file layout of an adapter's weights in a checkpoint. */
export function adapterLayout(
  { baseDigest }: AdapterBase,
  kind: TrainedAdapter['kind'] = 'lora',
  names = same,
): WeightsLayout {
  const metadata = { format: 'pt', [BASE_DIGEST]: baseDigest };
  return { file: ADAPTER_FILE, stored: kind === 'lora' ? inPeft(names) : same, metadata };
}

/**
 * The layers that a file of PEFT adapts, by the names of its tensors. Raises CheckpointError for a tensor that does not
 * belong to a low-rank adapter.
 */
export function layersIn(tensors: readonly string[], where: string): string[] {
  const layers = tensors.map((name) => {
    const layer = LORA_TENSOR.exec(name)?.[1];
    if (layer === undefined) {
      throw new CheckpointError(`found ${name}, which is not a tensor of a LoRA adapter`, { where });
    }
    return layer;
  });
  return [...new Set(layers)];
}

/** Whether a folder holds only an adapter. */
export function holdsAdapter(folder: string): boolean {
  return [ADAPTER_CONFIG_FILE, DIFFUSERS_LORA_FILE].some((name) => existsSync(join(folder, name)));
}

/** A folder's adapter_config.json. With weights in diffusers' form, which describe themselves, it only needs to name the base. */
function adapterJson(folder: string): unknown {
  const config = join(folder, ADAPTER_CONFIG_FILE);
  const weights = join(folder, DIFFUSERS_LORA_FILE);
  if (!existsSync(weights)) return readJson(config);
  const beside = existsSync(config) ? readJson(config) : {};
  return typeof beside === 'object' ? { ...diffusersLoraConfig(weights), ...beside } : beside;
}

function isOfDiffusers(weights: string): boolean {
  return basename(weights) === DIFFUSERS_LORA_FILE;
}

/** Names a base so that other machines can find it: their cache has a Hub model in another folder. */
function baseJson(base: string): object {
  const hub = hubModelAt(base);
  return { base_model_name_or_path: hub?.hub ?? base, ...(hub === null ? {} : { revision: hub.revision }) };
}

/** A layer's matrices A [rank, in] and B [out, rank]. */
export interface LayerMatrices {
  readonly a: FloatTensor;
  readonly b: FloatTensor;
}

/** The matrices of a folder's LoRA by the names of their layers, which need no model. Raises CheckpointError for other tensors. */
export function loraLayers(folder: string): Map<string, LayerMatrices> {
  const file = adapterFile(folder);
  requireLora(file);
  const pattern = isOfDiffusers(file) ? DIFFUSERS_LORA_TENSOR : LORA_TENSOR;
  const found = new Map<string, Partial<LayerMatrices>>();
  for (const [name, tensor] of readSafetensors(file, [...readSafetensorsIndex(file).entries.keys()])) {
    const [, layer, matrix] = pattern.exec(name) ?? [];
    if (layer === undefined) throw new CheckpointError(`found ${name}, which is not a tensor of LoRA`, { where: file });
    found.set(layer, { ...found.get(layer), [matrix === 'lora_A' ? 'a' : 'b']: tensor });
  }
  const half = [...found].find(([, { a, b }]) => a === undefined || b === undefined);
  if (half !== undefined) throw new CheckpointError(`${half[0]} has only one of lora_A and lora_B`, { where: file });
  return found as Map<string, LayerMatrices>;
}

/** PEFT's description of an adapter. `task` is its task_type. */
export function loraConfigJson(
  { rank, alpha, rslora, targets, excluded, transformed }: LoraSettings,
  { base }: Pick<AdapterBase, 'base'>,
  task: 'CAUSAL_LM' | null,
): string {
  const json = {
    peft_type: 'LORA',
    task_type: task,
    ...baseJson(base),
    r: rank,
    lora_alpha: alpha,
    target_modules: targets,
    ...(excluded === undefined ? {} : { exclude_modules: excluded }),
    ...(transformed === undefined
      ? {}
      : { layers_to_transform: transformed.indexes, layers_pattern: transformed.patterns }),
    lora_dropout: 0,
    bias: 'none',
    use_rslora: rslora,
    fan_in_fan_out: false,
    inference_mode: true,
    modules_to_save: null,
  };
  return `${JSON.stringify(json, null, 2)}\n`;
}

/** The description of an IP-Adapter. */
export function ipAdapterConfigJson(config: IpAdapterConfig, { base }: Pick<AdapterBase, 'base'>): string {
  return `${JSON.stringify({ peft_type: IP_ADAPTER, ...baseJson(base), image_prompt: config }, null, 2)}\n`;
}

/** The value of `peft_type` for an IP-Adapter. */
const IP_ADAPTER = 'IP_ADAPTER';

const ipSchema = z.strictObject({
  peft_type: z.literal(IP_ADAPTER),
  base_model_name_or_path: z.string().min(1),
  revision: z.string().nullish(),
  image_prompt: z.strictObject(ipAdapterSchema.shape),
});

/** The kind of a folder's adapter and the base that it needs. Its weights need not exist yet. */
export type DescribedAdapter =
  | (StoredLora & { readonly kind: 'lora' })
  | { readonly kind: 'image_prompt'; readonly config: IpAdapterConfig; readonly base: string };

/** Raises CheckpointError for an unsupported adapter, and whatever `readPeftConfig` raises. */
export function describeAdapter(folder: string): DescribedAdapter {
  const where = join(folder, ADAPTER_CONFIG_FILE);
  const json = adapterJson(folder);
  if ((Object(json) as { readonly peft_type?: unknown }).peft_type !== IP_ADAPTER) {
    return { kind: 'lora', ...readPeftConfig(json, where) };
  }
  const ip = ipSchema.safeParse(json);
  if (ip.success) {
    return { kind: 'image_prompt', config: ip.data.image_prompt, base: ip.data.base_model_name_or_path };
  }
  const [issue] = ip.error.issues;
  throw new CheckpointError(`this IP-Adapter is not supported: ${[...issue.path, issue.message].join(': ')}`, {
    where,
    next: 'Name an adapter that this program wrote.',
  });
}

/** A folder's LoRA adapter. Raises CheckpointError for an adapter of another kind. */
export function readAdapterConfig(folder: string): StoredLora {
  const found = describeAdapter(folder);
  if (found.kind === 'lora') return found;
  throw new CheckpointError('this is an IP-Adapter, and LoRA is expected', {
    where: join(folder, ADAPTER_CONFIG_FILE),
    next: 'Name a language model, or a LoRA adapter of one.',
  });
}

/** The digest of the base that a folder's adapter was trained on. Null if its file has none. */
export function recordedBase(folder: string): string | null {
  return readSafetensorsIndex(adapterFile(folder)).metadata[BASE_DIGEST] ?? null;
}

/** The path of an adapter's weights. Raises CheckpointError if only a pickle is there. */
export function adapterFile(folder: string): string {
  const path = join(folder, ADAPTER_FILE);
  const found = [join(folder, DIFFUSERS_LORA_FILE), path].find(existsSync);
  if (found !== undefined || !existsSync(join(folder, PICKLE))) return found ?? path;
  throw new CheckpointError(`there is no ${ADAPTER_FILE}; found: ${PICKLE}, a pickle, which is never loaded`, {
    where: folder,
    next: 'Save the adapter as safetensors: load it with PEFT and call save_pretrained(folder).',
  });
}

/** `namings` with the one first that the tensors of a folder's adapter have. `layers` are the layers that could be adapted. */
export function byFile(
  folder: string,
  namings: readonly [ModuleNames, ...ModuleNames[]],
  layers: readonly string[],
): [ModuleNames, ...ModuleNames[]] {
  const [first, ...others] = namings;
  if (!existsSync(join(folder, ADAPTER_FILE))) return [first, ...others];
  const names = readSafetensorsIndex(join(folder, ADAPTER_FILE)).entries.keys();
  const held = new Set([...names].map((name) => LORA_TENSOR.exec(name)?.[1]));
  const found = namings.find((nameOf) => layers.some((layer) => held.has(nameOf(layer)))) ?? first;
  return [found, ...namings.filter((one) => one !== found)];
}

/** Shapes of an adapter's parameters by their names. */
type Parameters = ReadonlyMap<string, readonly number[]>;

/**
 * The weights of a folder's adapter, which has these parameters. Raises the CheckpointErrors of `readWeights`, and for a tensor that is not one of
 * them.
 */
export function adapterWeights(
  folder: string,
  parameters: Parameters,
  kind: TrainedAdapter['kind'],
  names = same,
): Weights {
  const { files, stored } = findAdapter(folder, parameters, kind, names);
  return readWeights(files, parameters, stored);
}

/** Checks the input of `adapterWeights` by the file's header. Raises the same errors. */
export function checkAdapterWeights(
  folder: string,
  parameters: Parameters,
  kind: TrainedAdapter['kind'],
  names = same,
): void {
  const { files, stored } = findAdapter(folder, parameters, kind, names);
  checkWeights(files, parameters, stored);
}

function findAdapter(
  folder: string,
  parameters: Parameters,
  kind: TrainedAdapter['kind'],
  names: ModuleNames,
): { readonly files: TensorFiles; readonly stored: ModuleNames } {
  const where = adapterFile(folder);
  const files = tensorsOf(where);
  if (kind === 'image_prompt') {
    requireRead(
      [...files.keys()].filter((name) => !parameters.has(name)),
      where,
    );
    return { files, stored: same };
  }
  requireLora(where);
  const held = new Map([...files.keys()].map((name) => [name.replace(LORA_TENSOR, `${PREFIX}$1.$2.weight`), name]));
  const named = isOfDiffusers(where) ? inDiffusers : inPeft(names);
  const stored: ModuleNames = (name) => held.get(named(name)) ?? named(name);
  const read = new Set([...parameters.keys()].map(stored));
  requireRead(
    [...files.keys()].filter((name) => !read.has(name)),
    where,
  );
  const missing = [...parameters.keys()].map(stored).filter((name) => !files.has(name));
  if (missing.length > 0) {
    throw new CheckpointError(
      `the adapter lacks ${missing.length} of ${parameters.size} tensors of the layers that ${ADAPTER_CONFIG_FILE} names: ${missing[0]}`,
      {
        where,
        next: 'Save the whole adapter again, or name only the layers that have tensors: by target_modules, exclude_modules and layers_to_transform.',
      },
    );
  }
  return { files, stored };
}

/** Raises CheckpointError for a file that cannot be a LoRA adapter of any model. */
function requireLora(where: string): void {
  const { entries } = readSafetensorsIndex(where);
  const empty = [...entries].find(([, { shape }]) => shape.includes(0))?.[0];
  if (entries.size === 0 || empty !== undefined) {
    throw new CheckpointError(`the adapter holds ${empty === undefined ? 'no tensors' : `no numbers in ${empty}`}`, {
      where,
      next: 'DeepSpeed ZeRO-3 writes such files if the weights are not gathered: save it again with stage3_gather_16bit_weights_on_model_save: true.',
    });
  }
  const bare = isOfDiffusers(where) ? undefined : [...entries.keys()].find((name) => BARE_TENSOR.test(name));
  if (bare === undefined) return;
  throw new CheckpointError(`the adapter's tensors lack PEFT's prefix '${PREFIX}': ${bare}`, {
    where,
    next: `Write '${PREFIX}' before each name. PEFT loads nothing from such a file, so merging it in Python would return the base unchanged.`,
  });
}

function requireRead(unread: readonly string[], where: string): void {
  if (unread.length === 0) return;
  const count = unread.length === 1 ? '' : ` (and ${unread.length - 1} more)`;
  throw new CheckpointError(`the adapter has an unexpected tensor: ${unread[0]}${count}`, {
    where,
    next: `Read are A and B of the linear layers that target_modules in ${ADAPTER_CONFIG_FILE} name. ${MERGE}`,
  });
}

/** SHA-256 over the digests of a folder's weight files, including its adapter's, in the order of their names. */
export function digestOfWeights(folder: string): string {
  if (holdsAdapter(folder)) {
    return sha256(`${digestOfWeights(baseOf(folder))} ${digestOf(adapterFile(folder))}`);
  }
  const files = [...new Set(tensorFiles(folder).values())].sort();
  return sha256(files.map(digestOf).join(' '));
}

/**
 * The Hub's cache names a large file by its digest, which was checked when it was downloaded, so the file need not be
 * read again.
 */
function digestOf(path: string): string {
  const { mtimeMs, size } = statSync(path);
  const key = `${path} ${mtimeMs} ${size}`;
  const found = digests.get(key) ?? blobDigest(path) ?? digestOfFileSync(path);
  digests.set(key, found);
  return found;
}

/** Digests of files that this process has read: a chain of adapters asks for its bases at each level. */
const digests = new Map<string, string>();

/**
 * The folder of an adapter's base: the path in the file, the run beside the checkpoint's own if the folder of runs was
 * moved, or the cached Hub model. Raises CheckpointError if it is in none of these places. The digest verifies that it is
 * the right one.
 */
export function baseOf(folder: string): string {
  const { base } = describeAdapter(folder);
  const hub = hubBaseOf(folder);
  const beside = join(folder, '..', '..', '..', ...base.split(sep).slice(-PLACE_OF_CHECKPOINT));
  const found = hub === null ? [base, beside].find(existsSync) : cachedSnapshot(hub);
  if (found !== null && found !== undefined) return found;
  throw new CheckpointError(`the adapter's base ${base} is missing`, {
    where: join(folder, ADAPTER_CONFIG_FILE),
    next:
      hub === null
        ? 'Bring the base model back, or correct base_model_name_or_path.'
        : 'It is a Hub model that is not in the cache: `editrl run` with this adapter as a model downloads it, or set HF_HUB_CACHE to the cache that has it.',
  });
}

/** The folder at the bottom of a chain of adapters. `folder` itself if it is not an adapter. Raises the errors of `baseOf`. */
export function rootOf(folder: string): string {
  return holdsAdapter(folder) ? rootOf(baseOf(folder)) : folder;
}

/** Whether a chain of adapters needs a model of the Hub that is not in the cache (yet). */
export function lacksHubBase(folder: string): boolean {
  if (!holdsAdapter(folder)) return false;
  const hub = hubBaseOf(folder);
  return (hub !== null && cachedModel(hub, 'model') === null) || lacksHubBase(baseOf(folder));
}

/** A checkpoint is `RUN/checkpoints/ITERATION` inside the folder of runs. */
const PLACE_OF_CHECKPOINT = 3;

/** The text of the config.json that describes a model. */
export function descriptionOf(folder: string): string {
  if (holdsAdapter(folder)) return descriptionOf(baseOf(folder));
  requireHere(folder);
  return readTextFile(join(folder, CONFIG_FILE), CheckpointError);
}

/**
 * Checks that the weights are those that an adapter was trained on. It is useless on others. A digest of null is
 * unknown.
 */
export function rejectOtherBase(folder: string, recorded: string | null, found: string): void {
  if (recorded === null || recorded === found) return;
  throw new CheckpointError('the adapter was trained on other weights than its base has now', {
    where: adapterFile(folder),
    next: `Bring back the weights whose digest is ${recorded.slice(0, 12)}…; found ${found.slice(0, 12)}….`,
  });
}

/** W + s B A for every adapted layer. Changes the frozen weights in place. */
export function mergeAdapter(adapter: Adapter, weights: Weights): Weights {
  for (const layer of adapter.layers) mergeLayer(adapter, layer, must(weights.get(`${layer}.weight`), layer), weights);
  return new Map([...weights].filter(([name]) => !isAdapters(name)));
}

/** W + s B A for one layer's weights [out, in], changed in place. Raises InternalError for weights in half precision. */
export function mergeLayer({ rank, scale }: Adapter, layer: string, tensor: FloatTensor, adapters: Weights): void {
  const { shape } = tensor;
  const data = writable(layer, tensor);
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
