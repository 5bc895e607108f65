/** Decoders with adapters over frozen weights. */
import { join } from 'node:path';
import { must } from '../../core/errors.js';
import { narrowMatrices, type FloatTensor, type HeldDtype } from '../../core/safetensors.js';
import type { Weights } from '../../models/files.js';
import type { ReadPart } from '../../nets/decoder/architectures.js';
import {
  decoderAdapter,
  decoderParameters,
  hasVision,
  withAdapter,
  type DecoderConfig,
} from '../../nets/decoder/config.js';
import { describeDecoder, openDecoder } from '../../nets/decoder/files.js';
import { initAdapter, type Adapter, type LoraSettings } from '../../nets/lora.js';
import { seeingTypes } from '../../nets/vision/architecture.js';
import { VISUAL, type TrainedParts } from '../../nets/vision/config.js';
import {
  ADAPTER_CONFIG_FILE,
  adapterWeights,
  asStored,
  baseOf,
  checkAdapterWeights,
  descriptionOf,
  digestOfWeights,
  holdsAdapter,
  mergeAdapter,
  readAdapterConfig,
  recordedBase,
  refuseOtherBase,
  type ModuleNames,
} from '../adapter_files.js';
import { isTrained, type AdapterOrigin, type PolicyModel } from './model.js';

/** A model with frozen weights and an adapter. */
export type AdaptedModel = PolicyModel & {
  readonly config: { readonly adapter: Adapter };
  readonly adapter: AdapterOrigin;
};

export function isAdapted(model: PolicyModel): model is AdaptedModel {
  return model.config.adapter !== undefined && model.adapter !== undefined;
}

/** The starting weights: the model without its adapter's change, or a copy of the weights that train; frozen ones are shared. */
export function referenceWeights(model: PolicyModel): Weights {
  const { config, weights } = model;
  const kept = ([name, tensor]: [string, FloatTensor]): FloatTensor => {
    if (!isTrained(model, name)) return tensor;
    if (config.adapter === undefined) return { shape: tensor.shape, data: tensor.data.slice() };
    // With B = 0 the adapter adds nothing, whatever A is.
    return name.endsWith('.lora_B.weight')
      ? { shape: tensor.shape, data: new Float32Array(tensor.data.length) }
      : tensor;
  };
  return new Map([...weights].map((entry) => [entry[0], kept(entry)]));
}

/** Maps the layers of a model that sees to their names in transformers' model of it, which PEFT adapts; other models use the names of their files. */
export function peftNames(config: DecoderConfig): ModuleNames {
  if (!hasVision(config)) return (name) => name;
  return (name) => {
    if (name.startsWith(VISUAL)) return `model.${name}`;
    return name.startsWith('model.') ? `model.language_model.${name.slice('model.'.length)}` : name;
  };
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

/** A decoder with the adapter of a folder. Raises CheckpointError as `readAdapterConfig` and `adapterWeights` do. */
export function adaptFrom(config: DecoderConfig, frozen: Weights, folder: string): AdaptedDecoder {
  const adapted = withStoredAdapter(config, folder);
  return { config: adapted, weights: new Map([...frozen, ...storedAdapterWeights(folder, adapted)]) };
}

/**
 * A decoder's config with the adapter of a folder. Raises CheckpointError as `readAdapterConfig` does, ConfigError for targets that match no layer.
 */
export function withStoredAdapter(config: DecoderConfig, folder: string): AdaptedDecoder['config'] {
  const stored = readAdapterConfig(folder);
  const where = `target_modules in ${join(folder, ADAPTER_CONFIG_FILE)}`;
  const adapted = withAdapter(config, ownTargets(config, stored.lora), null, where);
  return { ...adapted, adapter: asStored(folder, adapted.adapter, stored, peftNames(config)) };
}

/** The weights of a folder's adapter, under its model's names for them. Raises CheckpointError as `adapterWeights` does. */
export function storedAdapterWeights(folder: string, adapted: AdaptedDecoder['config']): Weights {
  return adapterWeights(folder, decoderAdapter(adapted), 'lora', peftNames(adapted));
}

/** Checks a folder's adapter and those below it without reading their weights. Raises as `openModel` for problems in them. */
export function checkAdapters(folder: string, part: ReadPart = 'words'): void {
  if (!holdsAdapter(folder)) return;
  checkAdapters(baseOf(folder), part);
  const adapted = withStoredAdapter(describeModel(folder, part), folder);
  checkAdapterWeights(folder, decoderAdapter(adapted), 'lora', peftNames(adapted));
}

/** Lists the adapted layers of a model that sees one by one: the targets alone do not tell which parts are adapted. */
export function listedTargets({ adapter, ...config }: AdaptedModel['config'], lora: LoraSettings): LoraSettings {
  if (!hasVision(config)) return lora;
  return { ...lora, targets: [...adapter.layers].map(peftNames(config)) };
}

/** The targets of an adapter's file, under this program's names for its layers. */
export function ownTargets(config: DecoderConfig, lora: LoraSettings): LoraSettings {
  if (!hasVision(config) || typeof lora.targets === 'string') return lora;
  const names = peftNames(config);
  const own = new Map([...decoderParameters(config).keys()].map((name) => [names(name), name]));
  const layerOf = (target: string): string => own.get(`${target}.weight`)?.slice(0, -'.weight'.length) ?? target;
  return { ...lora, targets: lora.targets.map(layerOf) };
}

/** Which parts of a folder's model can be read: the vision encoder too, if its adapter or one it stacks on was trained with it. */
export function readableParts(folder: string): ReadPart {
  const { model_type, vision_config } = JSON.parse(descriptionOf(folder)) as Record<string, unknown>;
  return vision_config !== undefined && seeingTypes.includes(String(model_type)) ? 'words and pictures' : 'words';
}

/** A model's settings and weights; for an adapter's folder, its base's with the adapter applied. */
export interface OpenedModel {
  readonly config: DecoderConfig;
  readonly weights: Weights;
}

/** The config.json of a folder, or that of its adapter's base. Raises as `openModel`, except for weights. */
export function describeModel(folder: string, part: ReadPart = 'words'): DecoderConfig {
  return holdsAdapter(folder) ? describeModel(baseOf(folder), part) : describeDecoder(folder, part).config;
}

/**
 * `held` in float16, matrices are `HalfTensor`s. Raises as `openDecoder` does, and CheckpointError when an adapter's base is not the one it was trained
 * on.
 */
export function openModel(folder: string, part: ReadPart = 'words', held: HeldDtype = 'float32'): OpenedModel {
  if (!holdsAdapter(folder)) return openDecoder(folder, part, held);
  const base = baseOf(folder);
  refuseOtherBase(folder, recordedBase(folder), digestOfWeights(base));
  const frozen = openModel(base, part);
  const { config, weights } = adaptFrom(frozen.config, frozen.weights, folder);
  const merged = mergeAdapter(config.adapter, weights);
  // One map alone holds them, so that each is let go as it is narrowed.
  for (const others of [frozen.weights, weights]) others.clear();
  narrowMatrices(merged, () => held);
  return { config: frozen.config, weights: merged };
}
