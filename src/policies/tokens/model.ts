/** A token policy's weights with what is needed to use them. */
import type { DecoderConfig } from '../../nets/decoder/config.js';
import type { Weights } from '../../models/files.js';
import { isAdapters, type LoraSettings } from '../../nets/lora.js';
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
  /** Where the model has an adapter: how it was asked for, and what it stands on. */
  readonly adapter?: AdapterOrigin;
}

/** What an adapter's checkpoint says beside its weights. */
export interface AdapterOrigin extends AdapterBase {
  readonly lora: LoraSettings;
}

/** The weights that training changes: an adapter's where the model has one, else all. They are the model's own, not copies. */
export function trainedWeights({ config, weights }: PolicyModel): Weights {
  if (config.adapter === undefined) return weights;
  return new Map([...weights].filter(([name]) => isAdapters(name)));
}

/** The weights that nothing changes; none without an adapter. */
export function frozenWeights({ config, weights }: PolicyModel): Weights {
  return new Map(config.adapter === undefined ? [] : [...weights].filter(([name]) => !isAdapters(name)));
}
