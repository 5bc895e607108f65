/** Opens a flow transformer from its folder, written by this program or by diffusers. */
import { join } from 'node:path';
import { inFloat32, type StorageDtypeOf } from '../../core/safetensors.js';
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
  /** Including the IP-Adapter's, if the config has one. */
  readonly weights: Weights;
}

/**
 * Matrices for which `heldOf` returns float16 are `HalfTensor`s. Raises CheckpointError for a folder without config or
 * weights, an unsupported class, the first tensor that is missing, has another shape, or exceeds the range of its
 * precision, and, for Stable Diffusion 3 and FLUX.2, unused tensors.
 */
export function openFlowTransformer(folder: string, heldOf: StorageDtypeOf = inFloat32): LoadedFlowTransformer {
  const config = describeFlowTransformer(folder);
  return { config, weights: readWeights(filesOf(folder, config), flowParameters(config), (name) => name, heldOf) };
}

/** Checks the input of `openFlowTransformer` without reading its weights. Raises the same errors. */
export function checkFlowTransformer(folder: string): FlowTransformerConfig {
  const config = describeFlowTransformer(folder);
  checkWeights(filesOf(folder, config), flowParameters(config));
  return config;
}

/**
 * The files of a model. Files of Stable Diffusion 3 and FLUX.2 are checked for unused tensors. A config.json of Stable
 * Diffusion 3 may not list a second attention that a block has, and a config.json of FLUX.2 cannot list biases. Both
 * would be ignored without this check.
 */
function filesOf(folder: string, config: FlowTransformerConfig): TensorFiles {
  const files = tensorFiles(folder);
  const known = flowParameters(config);
  if (config.architecture === 'sd3' || config.architecture === 'flux2') {
    rejectUnread(folder, files, (name) => known.has(name));
  }
  return files;
}

/** The config in a folder's config.json, without the weights. Raises the errors of `openFlowTransformer`. */
export function describeFlowTransformer(folder: string): FlowTransformerConfig {
  return readFlowConfig(readConfig(folder), join(folder, CONFIG_FILE));
}
