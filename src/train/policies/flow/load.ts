/** Loads a flow policy's model from its folder: a transformer with all its weights, or an adapter over another folder's. */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import {
  inFloat32,
  narrowMatrices,
  readSafetensorsIndex,
  type StorageDtype,
  type StorageDtypeOf,
} from '../../../core/safetensors.js';
import { CheckpointError, InternalError, must } from '../../../core/errors.js';
import type { Shape } from '../../../compute/graph/ir.js';
import type { WeightsLayout } from '../../../models/trained_weights.js';
import {
  flowClassOf,
  takesStyle,
  withIpAdapter,
  type FlowTransformerConfig,
  type IpAdapterConfig,
} from '../../../compute/nets/flow/config.js';
import {
  checkFlowTransformer,
  describeFlowTransformer,
  openFlowTransformer,
  type LoadedFlowTransformer,
} from '../../../models/networks/flow.js';
import {
  flowAdapter,
  flowParameters,
  initFlowTransformer,
  isIpAdapter,
} from '../../../compute/nets/flow/transformer.js';
import {
  adapterParameters,
  initAdapter,
  type Adapter,
  type LoraSettings,
  isAdapters,
} from '../../../compute/nets/lora.js';
import {
  ADAPTER_CONFIG_FILE,
  adapterFile,
  adapterLayout,
  adapterWeights,
  baseOf,
  checkAdapterWeights,
  describeAdapter,
  digestOfWeights,
  holdsAdapter,
  lacksHubBase,
  mergeAdapter,
  recordedBase,
  rejectOtherBase,
  rootOf,
  type AdapterBase,
  type TrainedAdapter,
} from '../../../models/adapters/files.js';
import { takesGuidance } from './rows.js';
import type { Weights } from '../../../models/files.js';
import { POSITION_TABLE } from '../../../compute/nets/flow/config.js';

/** The parts of a model to train. */
export interface FlowTraining {
  readonly trains: FlowTrains;
  /** LoRA, if it is trained. */
  readonly lora: LoraSettings | null;
  /** A new IP-Adapter for a model without one, if it is trained. */
  readonly imagePrompt: IpAdapterConfig | null;
  /** Seed for randomly initialized weights. */
  readonly seed: number;
}

/** The config.json of a folder, or that of its adapter's base with the adapter. Raises the errors of `openFlowModel`, except for weights. */
export function describeFlowModel(folder: string): FlowTransformerConfig {
  if (!holdsAdapter(folder)) return describeFlowTransformer(folder);
  const config = withDropout(describeFlowModel(baseOf(folder)), folder);
  const adapter = describeAdapter(folder);
  return adapter.kind === 'lora' ? config : withIpAdapter(config, adapter.config);
}

/** In the metadata of an adapter's weights: the largest share of images without words that it or its base was trained on. */
const DROPOUT = 'condition_dropout';

/** The files of weights that train over a base, in a policy's checkpoint. */
export function flowAdapterLayout(over: NonNullable<FlowModel['over']>, config: FlowTransformerConfig): WeightsLayout {
  const layout = adapterLayout(over, over.kind);
  const { condition_dropout: seen } = config;
  return seen === null ? layout : { ...layout, metadata: { ...layout.metadata, [DROPOUT]: String(seen) } };
}

/** The config of an adapter's base with the dropout of the adapter's own training, if the file records it. */
function withDropout(config: FlowTransformerConfig, folder: string): FlowTransformerConfig {
  const file = adapterFile(folder);
  const recorded = existsSync(file) ? readSafetensorsIndex(file).metadata[DROPOUT] : undefined;
  return recorded === undefined ? config : { ...config, condition_dropout: Number(recorded) };
}

/**
 * Matrices for which `heldOf` returns float16 are `HalfTensor`s. Raises the CheckpointErrors of `openFlowTransformer`, and if an adapter's
 * base is missing or not the one it was trained on.
 */
export function openFlowModel(folder: string, heldOf: StorageDtypeOf = inFloat32): LoadedFlowTransformer {
  if (!holdsAdapter(folder)) return openFlowTransformer(folder, heldOf);
  const base = baseOf(folder);
  rejectOtherBase(folder, recordedBase(folder), digestOfWeights(base));
  // LoRA is added to its base's weights in float32, and the sum is rounded once.
  const frozen = openFlowModel(base, describeAdapter(folder).kind === 'lora' ? inFloat32 : heldOf);
  const config = describeFlowModel(folder);
  const { kind, adapter, parameters } = storedAdapter(folder, frozen.config);
  const found = new Map([...frozen.weights, ...adapterWeights(folder, parameters, kind)]);
  const weights = adapter === null ? found : mergeAdapter(adapter, found);
  // Only one map references the tensors, so that each is freed as soon as it is converted.
  frozen.weights.clear();
  if (weights !== found) found.clear();
  narrowMatrices(weights, heldOf);
  return { config, weights };
}

/**
 * A folder's adapter for a model of this config. Without `adapter` it is an IP-Adapter. Raises CheckpointError for an unsupported one, ConfigError
 * for targets that match no layer.
 */
function storedAdapter(
  folder: string,
  config: FlowTransformerConfig,
): {
  readonly kind: 'lora' | 'image_prompt';
  readonly adapter: Adapter | null;
  readonly parameters: ReadonlyMap<string, Shape>;
} {
  const found = describeAdapter(folder);
  if (found.kind === 'image_prompt') {
    const own = [...flowParameters(withIpAdapter(config, found.config))].filter(([name]) => isIpAdapter(name));
    return { kind: found.kind, adapter: null, parameters: new Map(own) };
  }
  const where = `target_modules in ${join(folder, ADAPTER_CONFIG_FILE)}`;
  const adapter = flowAdapter(config, found.lora, where);
  const shapes = flowParameters(config);
  return { kind: found.kind, adapter, parameters: adapterParameters(adapter, (name) => must(shapes.get(name), name)) };
}

/** Checks a folder's adapter and those below it without reading their weights. Raises the errors of `openFlowModel` for problems in them. */
function checkAdapters(folder: string): void {
  if (!holdsAdapter(folder)) return;
  const base = baseOf(folder);
  checkAdapters(base);
  const { kind, parameters } = storedAdapter(folder, describeFlowModel(base));
  checkAdapterWeights(folder, parameters, kind);
}

/**
 * Loads a model's folder for training. If `held` is float16, frozen matrices are `HalfTensor`s. Raises the errors of `openFlowModel` and
 * `requireTrained`, and ConfigError for LoRA that matches no layer.
 */
export function loadFlow(folder: string, training: FlowTraining, held: StorageDtype = 'float32'): FlowModel {
  const { trains, lora, imagePrompt, seed } = training;
  const opened = openFlowModel(folder, (name) => (isTrained[trains](name) ? 'float32' : held));
  requireTrained(opened.config, training, folder);
  switch (trains) {
    case 'all':
      return { ...opened, trains, over: null };
    case 'adapter': {
      const kept = opened.config.ip_adapter;
      const own = must(kept ?? imagePrompt, 'an IP-Adapter');
      const config = withIpAdapter(opened.config, own);
      const begun = kept === null ? initFlowTransformer(config, seed, isIpAdapter) : [];
      const base = standsOn(folder);
      const over = { kind: 'image_prompt', config: own, base, baseDigest: digestOfWeights(base) } as const;
      return { config, weights: new Map([...opened.weights, ...begun]), trains, over };
    }
    case 'lora': {
      if (lora === null) throw new InternalError('LoRA is to be trained without its settings');
      const adapter = flowAdapter(opened.config, lora);
      const begun = initAdapter(adapter, (name) => must(opened.weights.get(name), name).shape, seed);
      // PEFT supports `all-linear` only for language models.
      const named = { ...lora, targets: [...adapter.layers].sort() };
      const over = { kind: 'lora', lora: named, base: folder, baseDigest: digestOfWeights(folder) } as const;
      return { config: opened.config, weights: new Map([...opened.weights, ...begun]), trains, adapter, over };
    }
  }
}

/** The base of an IP-Adapter's checkpoint, which contains the whole adapter: an adapter trained further keeps the first one's base. */
function standsOn(folder: string): string {
  return holdsAdapter(folder) && describeAdapter(folder).kind === 'image_prompt' ? baseOf(folder) : folder;
}

/** Raises CheckpointError when no part of a model would be trained. */
export function requireTrained(
  config: FlowTransformerConfig,
  { trains, imagePrompt }: Pick<FlowTraining, 'trains' | 'imagePrompt'>,
  folder: string,
): void {
  const own = config.ip_adapter;
  if (imagePrompt !== null && !takesStyle(config)) {
    throw new CheckpointError(`an IP-Adapter for a ${flowClassOf(config)} is not supported`, {
      where: folder,
      next: 'Set policy.ip_adapter to null, or name another model.',
    });
  }
  if (own !== null && imagePrompt !== null) {
    throw new CheckpointError('the model already has an IP-Adapter, but policy.ip_adapter requests a new one', {
      where: folder,
      next: 'Set policy.ip_adapter to null to train the one of the model.',
    });
  }
  if (trains === 'adapter' && own === null && imagePrompt === null) {
    throw new CheckpointError("the model has no IP-Adapter to train (policy.train 'adapter')", {
      where: folder,
      next: "Name a model that has one, set policy.ip_adapter to add a new one, or set policy.train to 'all' or 'lora'.",
    });
  }
}

/** How messages describe the guidance and the model, by the section that names it. */
const GUIDED = {
  policy: { scale: 'rollout.guidance_scale', model: 'policy.model' },
  environment: { scale: 'environment.guidance_scale', model: 'environment.model' },
} as const;

/** Guidance is measured from the model's output without words. Raises CheckpointError for a model that was never trained on that. */
export function requireUnconditional(
  config: FlowTransformerConfig,
  guidance: number | null,
  section: keyof typeof GUIDED = 'policy',
): void {
  if (guidance === null || takesGuidance(config)) return;
  requireDropout(config.condition_dropout, section);
}

/**
 * Like `requireUnconditional`, for a guided model without a scale input that was trained with this share of images without words. Null if
 * unknown.
 */
export function requireDropout(dropout: number | null, section: keyof typeof GUIDED): void {
  if (dropout !== 0) return;
  const { scale, model } = GUIDED[section];
  throw new CheckpointError(
    `${scale} is set, but the model has no unconditional branch: it was trained with condition_dropout 0`,
    { where: model, next: `Set ${scale} to null, or train the model with algorithm.sft.condition_dropout 0.1.` },
  );
}

/**
 * Checks what `openFlowModel` would open for a frozen model, and whether it can answer under a guidance, without reading weights. Raises the same errors. Skips
 * models that still have to be downloaded from the Hub.
 */
export function checkFrozenFlow(folder: string, guidance: number | null): void {
  if (lacksHubBase(folder)) return;
  checkFlowModel(folder, { trains: 'all', lora: null, imagePrompt: null });
  requireUnconditional(describeFlowModel(folder), guidance, 'environment');
}

/**
 * Checks what `loadFlow` would load, and whether it can answer under a guidance, without reading weights. Raises the same errors. Skips models
 * that still have to be downloaded from the Hub.
 */
export function checkFlowModel(
  folder: string,
  training: Omit<FlowTraining, 'seed'>,
  guidance: number | null = null,
): void {
  if (lacksHubBase(folder)) return;
  const config = describeFlowModel(folder);
  checkFlowTransformer(rootOf(folder));
  checkAdapters(folder);
  requireTrained(config, training, folder);
  requireUnconditional(config, guidance);
  if (training.lora !== null) flowAdapter(config, training.lora);
}

/** The parameters that training changes: all, those of the IP-Adapter, or LoRA beside the linear layers. */
export type FlowTrains = 'all' | 'adapter' | 'lora';

export interface FlowModel {
  readonly config: FlowTransformerConfig;
  /** All weights, including those of LoRA. */
  readonly weights: Weights;
  readonly trains: FlowTrains;
  /** LoRA over its linear layers. Absent if there is none. */
  readonly adapter?: Adapter;
  /** The base of its checkpoints if they contain only trained weights. Null if they contain all weights. */
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
