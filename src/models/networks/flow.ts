/** Opens a flow transformer from its folder, written by this program or by diffusers. */
import { join } from 'node:path';
import { inFloat32, type HeldOf } from '../../core/safetensors.js';
import {
  checkWeights,
  CONFIG_FILE,
  readConfig,
  readWeights,
  rejectUnread,
  tensorFiles,
  type TensorFiles,
  type Weights,
} from '../files.js';
import { readFlowConfig, type FlowTransformerConfig } from '../../compute/nets/flow/config.js';
import { flowParameters } from '../../compute/nets/flow/parameters.js';

export interface LoadedFlowTransformer {
  readonly config: FlowTransformerConfig;
  /** The IP-Adapter's among them, where the config has one. */
  readonly weights: Weights;
}

/**
 * Matrices of which `heldOf` says float16 are `HalfTensor`s. Raises CheckpointError for a folder without config or weights, a class that is not
 * covered, the first tensor that is missing or of another shape, or has a number beyond what it is held in, and, of Stable Diffusion 3, tensors that
 * nothing reads.
 */
export function openFlowTransformer(folder: string, heldOf: HeldOf = inFloat32): LoadedFlowTransformer {
  const config = describeFlowTransformer(folder);
  return { config, weights: readWeights(filesOf(folder, config), flowParameters(config), (name) => name, heldOf) };
}

/** Looks at what `openFlowTransformer` would read, without reading its weights. Raises as that does. */
export function checkFlowTransformer(folder: string): FlowTransformerConfig {
  const config = describeFlowTransformer(folder);
  checkWeights(filesOf(folder, config), flowParameters(config));
  return config;
}

/** A second attention in another block than config.json says would else be passed over. */
function filesOf(folder: string, config: FlowTransformerConfig): TensorFiles {
  const files = tensorFiles(folder);
  const known = flowParameters(config);
  if (config.architecture === 'sd3') rejectUnread(folder, files, (name) => known.has(name));
  return files;
}

/** The config in a folder's config.json, without the weights. Raises as `openFlowTransformer` does. */
export function describeFlowTransformer(folder: string): FlowTransformerConfig {
  return readFlowConfig(readConfig(folder), join(folder, CONFIG_FILE));
}
