/** Folders of weights as vLLM reads them. */
import { safetensorsPieces } from '../../../core/safetensors.js';
import type { CheckpointFiles, Weights } from '../../../models/files.js';
import { ADAPTER_CONFIG_FILE, adapterLayout, loraConfigJson } from '../../adapter_files.js';
import type { AdaptedModel } from '../adapter.js';
import type { PolicyModel } from '../model.js';

const WHOLE_FILE = 'model.safetensors';

/** All weights of a model, of which `weights` are those that train. The server keeps its own config.json. */
export function wholeFolder(model: PolicyModel, weights: Weights): CheckpointFiles {
  return { [WHOLE_FILE]: safetensorsPieces(new Map([...model.weights, ...weights]), { format: 'pt' }) };
}

/** `weights` are the adapter's. Its layers are listed by name, since vLLM supports neither `all-linear` nor patterns. */
export function adapterFolder(model: AdaptedModel, weights: Weights): CheckpointFiles {
  const { file, stored, metadata } = adapterLayout(model.adapter);
  const layers = [...model.config.adapter.layers].map((name) => name.slice(name.lastIndexOf('.') + 1));
  const config = {
    ...(JSON.parse(loraConfigJson(model.adapter.lora, model.adapter, 'CAUSAL_LM')) as object),
    target_modules: [...new Set(layers)].sort(),
  };
  return {
    [ADAPTER_CONFIG_FILE]: `${JSON.stringify(config, null, 2)}\n`,
    [file]: safetensorsPieces(new Map([...weights].map(([name, tensor]) => [stored(name), tensor])), metadata),
  };
}
