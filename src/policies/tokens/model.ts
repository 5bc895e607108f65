/** A token policy's weights with what is needed to use them. */
import type { DecoderConfig } from '../../nets/decoder/config.js';
import type { Weights } from '../../models/files.js';
import { isAdapters, type LoraSettings } from '../../nets/lora.js';
import { partOf, type TrainedParts } from '../../nets/vision/config.js';
import type { AdapterBase } from '../adapter_files.js';
import type { TokenPrompt } from './batch.js';
import type { TokenFormat } from './format.js';

export interface PolicyModel<P extends TokenPrompt = TokenPrompt> {
  readonly config: DecoderConfig;
  readonly format: TokenFormat<P>;
  /** All of them, an adapter's included. */
  readonly weights: Weights;
  /** The config.json of the model that it began as; absent for random weights. */
  readonly description?: string;
  /** For a model that sees: which parts train, and which of them with an adapter; absent: all. */
  readonly trains?: TrainedParts;
  /** Further files of its folder by their names, such as how pictures are cut; absent: none. */
  readonly files?: Readonly<Record<string, string>>;
  /** Where the model has an adapter: how it was asked for, and what it stands on. */
  readonly adapter?: AdapterOrigin;
}

/** What an adapter's checkpoint says beside its weights. */
export interface AdapterOrigin extends AdapterBase {
  readonly lora: LoraSettings;
}

/** Whether training changes a weight: an adapter's where the model has one, else those of the parts that train. */
export function isTrained({ config, trains }: Pick<PolicyModel, 'config' | 'trains'>, name: string): boolean {
  if (config.adapter !== undefined) return isAdapters(name);
  return trains === undefined || trains[partOf(name)];
}

/** The weights that training changes. They are the model's own, not copies. */
export function trainedWeights(model: PolicyModel): Weights {
  return new Map([...model.weights].filter(([name]) => isTrained(model, name)));
}

/** The weights that nothing changes. */
export function frozenWeights(model: PolicyModel): Weights {
  return new Map([...model.weights].filter(([name]) => !isTrained(model, name)));
}
