/** Decoders with adapters over frozen weights. */
import { join } from 'node:path';
import { must } from '../../core/errors.js';
import { type FloatTensor, type StorageDtype, narrowMatrices } from '../../core/safetensors.js';
import type { Weights } from '../files.js';
import { isInsideVisionModel, type ReadPart } from '../../compute/nets/decoder/architectures.js';
import {
  decoderAdapter,
  type DecoderConfig,
  hasVision,
  linearWeights,
  withAdapter,
} from '../../compute/nets/decoder/config.js';
import { describeDecoder, namings, openDecoder, smolvlmNames } from '../networks/decoder.js';
import { type Adapter, initAdapter, type LoraSettings, type ModuleNames } from '../../compute/nets/lora.js';
import { visionDecoderTypes, type TrainedParts } from '../../compute/nets/vision/config.js';
import {
  ADAPTER_CONFIG_FILE,
  adapterWeights,
  baseOf,
  byFile,
  checkAdapterWeights,
  descriptionOf,
  digestOfWeights,
  holdsAdapter,
  mergeAdapter,
  readAdapterConfig,
  recordedBase,
  rejectOtherBase,
} from './files.js';
import { type AdapterOrigin, isTrained, type PolicyModel } from './policy_model.js';

/** A model with frozen weights and an adapter. */
export type AdaptedModel = PolicyModel & {
  readonly config: { readonly adapter: Adapter };
  readonly adapter: AdapterOrigin;
};

export function isAdapted(model: PolicyModel): model is AdaptedModel {
  return model.config.adapter !== undefined && model.adapter !== undefined;
}

/**
 * The starting weights: the model without its adapter's change, or a copy of the trained weights. Frozen ones are
 * shared.
 */
export function referenceWeights(model: PolicyModel): Weights {
  const { config, weights } = model;
  const kept = ([name, tensor]: [string, FloatTensor]): FloatTensor => {
    if (!isTrained(model, name)) return tensor;
    if (config.adapter === undefined) return { shape: tensor.shape, data: tensor.data.slice() };
    // With B = 0 the adapter adds nothing, for any A.
    return name.endsWith('.lora_B.weight')
      ? { shape: tensor.shape, data: new Float32Array(tensor.data.length) }
      : tensor;
  };
  return new Map([...weights].map((entry) => [entry[0], kept(entry)]));
}

/** A model's config, and the config.json of its folder if it has one. */
type Described = Pick<PolicyModel, 'config' | 'description'>;

/** Whether transformers' class of the model reads images, even if a run trains it only on words. */
function isVision({ config, description }: Described): boolean {
  if (hasVision(config)) return true;
  return description !== undefined && isInsideVisionModel(JSON.parse(description) as Record<string, unknown>);
}

function isVisionJson(description: string): boolean {
  const { model_type, vision_config } = JSON.parse(description) as Record<string, unknown>;
  return vision_config !== undefined && visionDecoderTypes.includes(String(model_type));
}

function typeOf({ config, description }: Described): string {
  if (hasVision(config)) return config.vision.family;
  return String((JSON.parse(description ?? '{}') as Record<string, unknown>)['model_type']);
}

/** Maps a model's layers to their names in transformers' model of it, which PEFT adapts. */
export function peftNames(model: Described): ModuleNames {
  const [ofWords, ofImages] = namings;
  if (!isVision(model)) return ofWords;
  return typeOf(model) === 'smolvlm' ? smolvlmNames : ofImages;
}

/** Maps a model's layers to their names in the file of a folder's adapter, and further names that its settings may mean. */
function storedNamings(config: DecoderConfig, folder: string): [ModuleNames, ...ModuleNames[]] {
  const names = peftNames({ config });
  const layers = linearWeights(config).map((name) => name.slice(0, -'.weight'.length));
  return byFile(folder, [names, ...namings.filter((one) => one !== names)], layers);
}

/** A decoder with an adapter. */
export interface AdaptedDecoder {
  readonly config: DecoderConfig & { readonly adapter: Adapter };
  readonly weights: Weights;
}

/** A decoder with a fresh adapter. */
export function adapt(
  config: DecoderConfig,
  frozen: Weights,
  lora: LoraSettings,
  { seed, parts }: { readonly seed: number; readonly parts?: TrainedParts | null },
): AdaptedDecoder {
  const adapted = withAdapter(config, lora, parts);
  const weights = initAdapter(adapted.adapter, (name) => must(frozen.get(name), name).shape, seed);
  return { config: adapted, weights: new Map([...frozen, ...weights]) };
}

/** A decoder with the adapter of a folder. Raises the CheckpointErrors of `readAdapterConfig` and `adapterWeights`. */
export function adaptFrom(config: DecoderConfig, frozen: Weights, folder: string): AdaptedDecoder {
  const adapted = withStoredAdapter(config, folder);
  return { config: adapted, weights: new Map([...frozen, ...storedAdapterWeights(folder, adapted)]) };
}

/**
 * A decoder's config with the adapter of a folder. Raises the CheckpointErrors of `readAdapterConfig`, and ConfigError for targets that match no layer.
 */
export function withStoredAdapter(config: DecoderConfig, folder: string): AdaptedDecoder['config'] {
  const where = `target_modules in ${join(folder, ADAPTER_CONFIG_FILE)}`;
  return withAdapter(config, readAdapterConfig(folder).lora, null, where, storedNamings(config, folder));
}

/** The weights of a folder's adapter, under its model's names for them. Raises the CheckpointErrors of `adapterWeights`. */
export function storedAdapterWeights(folder: string, adapted: AdaptedDecoder['config']): Weights {
  const [names] = storedNamings(adapted, folder);
  return adapterWeights(folder, decoderAdapter(adapted), 'lora', names);
}

/**
 * Checks a folder's adapter and those below it without reading their weights. Raises the errors of `openModel` for problems in
 * them.
 */
export function checkAdapters(folder: string, part: ReadPart = 'words'): void {
  if (!holdsAdapter(folder)) return;
  checkAdapters(baseOf(folder), part);
  const adapted = withStoredAdapter(describeModel(folder, part), folder);
  const [names] = storedNamings(adapted, folder);
  checkAdapterWeights(folder, decoderAdapter(adapted), 'lora', names);
}

/** Lists the adapted layers of a vision model one by one: the targets alone do not show which parts are adapted. */
export function listedTargets(
  model: Described & { readonly config: AdaptedModel['config'] },
  lora: LoraSettings,
): LoraSettings {
  if (!isVision(model)) return lora;
  return { ...lora, targets: [...model.config.adapter.layers].map(peftNames(model)) };
}

/**
 * The readable parts of a folder's model. They include the vision encoder if its adapter, or one below it, was trained
 * with it.
 */
export function readableParts(folder: string): ReadPart {
  return isVisionJson(descriptionOf(folder)) ? 'words and images' : 'words';
}

/** A model's settings and weights. For an adapter's folder, those of its base with the adapter applied. */
export interface OpenedModel {
  readonly config: DecoderConfig;
  readonly weights: Weights;
}

/** The config.json of a folder, or of its adapter's base. Raises the errors of `openModel`, except for weights. */
export function describeModel(folder: string, part: ReadPart = 'words'): DecoderConfig {
  return holdsAdapter(folder) ? describeModel(baseOf(folder), part) : describeDecoder(folder, part).config;
}

/**
 * If `held` is float16, matrices are `HalfTensor`s. Raises the errors of `openDecoder`, and CheckpointError when an adapter's
 * base is not the one it was trained on.
 */
export function openModel(folder: string, part: ReadPart = 'words', held: StorageDtype = 'float32'): OpenedModel {
  if (!holdsAdapter(folder)) return openDecoder(folder, part, held);
  const base = baseOf(folder);
  rejectOtherBase(folder, recordedBase(folder), digestOfWeights(base));
  const frozen = openModel(base, part);
  const { config, weights } = adaptFrom(frozen.config, frozen.weights, folder);
  const merged = mergeAdapter(config.adapter, weights);
  // Only this map holds them, so that each is freed as soon as it is narrowed.
  for (const others of [frozen.weights, weights]) others.clear();
  narrowMatrices(merged, () => held);
  return { config: frozen.config, weights: merged };
}
