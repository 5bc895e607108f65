/** The weights of a token policy, and the files needed to use them. */
import type { DecoderConfig } from '../../compute/nets/decoder/config.js';
import type { Weights } from '../files.js';
import { isAdapters, type LoraSettings } from '../../compute/nets/lora.js';
import { partOf, type TrainedParts } from '../../compute/nets/vision/config.js';
import type { AdapterBase } from './files.js';
import type { TokenPrompt } from '../tokenizer/format.js';
import type { TokenFormat } from '../tokenizer/format.js';

export interface PolicyModel<P extends TokenPrompt = TokenPrompt> {
  readonly config: DecoderConfig;
  readonly format: TokenFormat<P>;
  /** All weights, including an adapter's. */
  readonly weights: Weights;
  /** The config.json of the original model. Absent for random weights. */
  readonly description?: string;
  /** For a vision model: the trained parts, and those with an adapter. Absent: all. */
  readonly trains?: TrainedParts;
  /** Further files of its folder by name, such as the image processor's config. Default: none. */
  readonly files?: Readonly<Record<string, string>>;
  /** Weights that are only written to checkpoints: the vision encoder of a model that is trained on text alone. Absent: none. */
  readonly unread?: Weights;
  /** For a model with an adapter: its settings and its base. */
  readonly adapter?: AdapterOrigin;
}

/** The content of an adapter's checkpoint in addition to its weights. */
export interface AdapterOrigin extends AdapterBase {
  readonly lora: LoraSettings;
}

/** Whether training changes a weight: the adapter's if the model has one, otherwise those of the trained parts. */
export function isTrained({ config, trains }: Pick<PolicyModel, 'config' | 'trains'>, name: string): boolean {
  if (config.adapter !== undefined) return isAdapters(name);
  return trains === undefined || trains[partOf(name)];
}

/** The weights that training changes: the model's own, not copies. */
export function trainedWeights(model: PolicyModel): Weights {
  return new Map([...model.weights].filter(([name]) => isTrained(model, name)));
}

/** The weights that training never changes. */
export function frozenWeights(model: PolicyModel): Weights {
  return new Map([...model.weights].filter(([name]) => !isTrained(model, name)));
}
