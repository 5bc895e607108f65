/** Decoders with adapters over frozen weights. */
import { must } from '../../core/errors.js';
import type { Weights } from '../../models/files.js';
import { decoderAdapter, withAdapter, type DecoderConfig } from '../../nets/decoder/config.js';
import { describeDecoder, openDecoder } from '../../nets/decoder/files.js';
import { initAdapter, type Adapter, type LoraSettings } from '../../nets/lora.js';
import {
  baseOf,
  digestOfWeights,
  holdsAdapter,
  loraWeights,
  merged,
  readAdapterConfig,
  refuseOtherBase,
} from '../adapter_files.js';
import type { AdapterOrigin, PolicyModel } from './model.js';

/** A model of frozen weights with an adapter. */
export type AdaptedModel = PolicyModel & {
  readonly config: { readonly adapter: Adapter };
  readonly adapter: AdapterOrigin;
};

export function isAdapted(model: PolicyModel): model is AdaptedModel {
  return model.config.adapter !== undefined && model.adapter !== undefined;
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
  return loraWeights(folder, decoderAdapter(adapted));
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
