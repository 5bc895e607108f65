/** A flow policy's weights and architecture. */
import { CheckpointError } from '../../core/errors.js';
import type { Weights } from '../../models/files.js';
import type { FlowTransformerConfig } from '../../nets/flow/config.js';
import { openFlowTransformer } from '../../nets/flow/files.js';
import { initFlowTransformer, isIpAdapter } from '../../nets/flow/transformer.js';

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

/** Loads a model's folder. Raises CheckpointError where something is missing, broken or not covered, or nothing in it is to be trained. */
export function loadFlow(folder: string, trains: FlowModel['trains']): FlowModel {
  const { config, weights } = openFlowTransformer(folder);
  requireTrained(config, trains, folder);
  return { config, weights, trains };
}

/** Raises CheckpointError where nothing of a model is to be trained. */
export function requireTrained(config: FlowTransformerConfig, trains: FlowModel['trains'], folder: string): void {
  if (trains === 'adapter' && config.ip_adapter === null) {
    throw new CheckpointError('the model has no IP-Adapter, which alone is to be trained', {
      where: folder,
      next: "Name a model that has one, or set policy.train to 'all'.",
    });
  }
}
