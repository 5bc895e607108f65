/** A flow policy's weights and architecture. */
import type { Weights } from '../../models/files.js';
import type { FlowTransformerConfig } from '../../nets/flow/config.js';
import { POSITION_TABLE } from '../../nets/flow/names.js';
import { initFlowTransformer, isIpAdapter } from '../../nets/flow/transformer.js';
import { isAdapters, type Adapter } from '../../nets/lora.js';
import type { AdapterBase, TrainedAdapter } from '../adapter_files.js';

/** Which parameters training changes: all, those of the IP-Adapter, or LoRA beside the linear layers. */
export type FlowTrains = 'all' | 'adapter' | 'lora';

export interface FlowModel {
  readonly config: FlowTransformerConfig;
  /** All weights, including those of LoRA. */
  readonly weights: Weights;
  readonly trains: FlowTrains;
  /** LoRA over its linear layers; absent if there is none. */
  readonly adapter?: Adapter;
  /** The base of its checkpoints if they hold only what trains; null if they hold all weights. */
  readonly over: (AdapterBase & TrainedAdapter) | null;
}

/** Whether training changes a weight. */
export const isTrained: Readonly<Record<FlowTrains, (name: string) => boolean>> = {
  all: (name) => name !== POSITION_TABLE,
  adapter: isIpAdapter,
  lora: isAdapters,
};

/** The weights that training changes: the model's own, not copies. */
export function trainedPart({ weights, trains }: Pick<FlowModel, 'weights' | 'trains'>): Weights {
  const isOurs = isTrained[trains];
  return new Map([...weights].filter(([name]) => isOurs(name)));
}

/** A model with random weights. */
export function initFlow(config: FlowTransformerConfig, trains: Exclude<FlowTrains, 'lora'>, seed: number): FlowModel {
  return { config, weights: initFlowTransformer(config, seed), trains, over: null };
}
