/** A flow policy's weights and architecture. */
import { join } from 'node:path';
import { CONFIG_FILE, readConfig, readWeights, tensorFiles, type Weights } from '../../models/files.js';
import { flowParameters, initFlowTransformer, isIpAdapter } from '../../nets/flow/transformer.js';
import { readFlowConfig, type FlowTransformerConfig } from '../../nets/flow/config.js';

export interface FlowModel {
  readonly config: FlowTransformerConfig;
  /** All of them. */
  readonly weights: Weights;
  /** Which parameters training changes. */
  readonly trains: 'all' | 'adapter';
}

/** The weights that training changes: the model's own, not copies. */
export function trainedPart({ weights, trains }: Pick<FlowModel, 'weights' | 'trains'>): Weights {
  return trains === 'all' ? weights : new Map([...weights].filter(([name]) => isIpAdapter(name)));
}

/** A model from random weights. */
export function initFlow(config: FlowTransformerConfig, trains: FlowModel['trains'], seed: number): FlowModel {
  return { config, weights: initFlowTransformer(config, seed), trains };
}

/** Loads a model's folder. Raises CheckpointError where something is missing, broken or not covered. */
export function loadFlow(folder: string, trains: FlowModel['trains']): FlowModel {
  const config = readFlowConfig(readConfig(folder), join(folder, CONFIG_FILE));
  return { config, weights: readWeights(tensorFiles(folder), flowParameters(config)), trains };
}
