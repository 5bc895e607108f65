/** Shared settings of recipes with a flow transformer: its shape, the models around it, and its memory if it only generates. */
import type { z } from 'zod';
import type { StorageDtype } from '../../../core/safetensors.js';
import type { flowInitFields } from '../../../config/schema/image_model.js';
import type { ModelReference } from '../../../config/schema/model.js';
import type { TrainedSettings } from '../../../config/schema/run.js';
import {
  flowActivations,
  frozenFlowBytes,
  flowModelParameters,
  frozenBytes,
  frozenWordsBytes,
  trainingBytes,
  type DataSizes,
  type FlowModelShape,
  type ShapeOf,
} from '../memory.js';
import type { Learner, Part } from '../../recipe.js';
import { noisySteps } from '../../../config/schema/training.js';
import type { FlowPolicySettings } from './rules.js';

/** Pixels on a side of an image for each latent on a side, of common autoencoders. */
export const ASSUMED_REDUCTION = 8;

/** The shape of a transformer with random weights. `reduction` is the number of pixels per latent along a side. */
export function freshFlowShape(
  init: z.output<z.ZodObject<typeof flowInitFields>>,
  {
    reduction,
    ...rest
  }: Pick<FlowModelShape, 'textWidth' | 'conditionDropout'> & {
    readonly imagePrompt?: FlowModelShape['imagePrompt'];
    readonly mediaBeside?: boolean;
    readonly reduction: number;
  },
): FlowModelShape {
  return {
    kind: 'flow',
    width: init.num_attention_heads * init.attention_head_dim,
    heads: init.num_attention_heads,
    layers: init.num_layers,
    singleLayers: init.num_single_layers,
    patch: init.patch * reduction,
    imagePrompt: null,
    ...rest,
  };
}

/** Trains a flow transformer of all weights on labeled images. */
export function flowMatchingLearner<S extends TrainedSettings>(
  shape: (settings: S, shapeOf: ShapeOf) => FlowModelShape,
  sizes: (
    settings: S,
    shape: FlowModelShape,
    shapeOf: ShapeOf,
  ) => { readonly tokens: number; readonly frozen?: number },
): Learner<S> {
  return {
    engine: 'environment.engine',
    start: null,
    parameters: (settings, shapeOf) => flowModelParameters(shape(settings, shapeOf)),
    memory: (settings, shapeOf) => {
      const { ema_decay, per_device_batch_size, gradient_checkpointing } = settings.optimizer;
      const trained = shape(settings, shapeOf);
      const { tokens, frozen } = sizes(settings, trained, shapeOf);
      const activations = flowActivations(trained, {
        ...{ images: per_device_batch_size, tokens },
        gradientCheckpointing: gradient_checkpointing,
      });
      return trainingBytes(flowModelParameters(trained), activations, ema_decay === null ? 0 : 1, frozen);
    },
    shape,
  };
}

/** Side of images whose size is that of their sources, in pixels. */
const ASSUMED_SIDE = 512;

type Environment =
  | {
      readonly type: 'model';
      readonly model: ModelReference;
      readonly parts: Partial<Record<'vae' | 'text_encoder', ModelReference | null>>;
      readonly engine: { readonly dtype: StorageDtype };
      /** Absent if images have the size of their sources. */
      readonly width?: number;
      readonly height?: number;
    }
  | { readonly type: 'images_api' | 'images_api_text_prompt' | 'render_server' }
  | null;

/** A frozen flow model that makes images of answers, with the models around it. */
export function frozenFlowPart(
  parts: readonly ('vae' | 'text_encoder')[],
): Part<TrainedSettings & { readonly environment: Environment }> {
  return {
    models: [...parts.map((part) => `environment.parts.${part}`), 'environment.model'],
    engines: ['environment.engine'],
    imageMemory: ({ environment }, shapeOf) => {
      if (environment?.type !== 'model') return 0;
      const { model, parts: around, engine, width = ASSUMED_SIDE, height = ASSUMED_SIDE } = environment;
      const pixels = width * height;
      return Object.entries(around).reduce(
        (sum, [name, part]) => sum + (name === 'text_encoder' ? 0 : frozenBytes(part, shapeOf, pixels)),
        frozenBytes(model, shapeOf, pixels, engine.dtype) +
          frozenWordsBytes(around.text_encoder ?? null, shapeOf, engine.dtype),
      );
    },
  };
}

/**
 * A flow policy that starts from a model or from random weights. `trainedOf` counts the parameters that change and those that never do, and `sizesOf` gives
 * the tokens of an image with its text, and the bytes of the frozen models around it.
 */
export function flowPolicyLearner<S extends TrainedSettings & FlowPolicySettings>(
  shape: (settings: S, shapeOf: ShapeOf) => FlowModelShape | null,
  trainedOf: (settings: S, shape: FlowModelShape) => { readonly trained: number; readonly frozen: number },
  sizesOf: (
    settings: S,
    shape: FlowModelShape,
    shapeOf: ShapeOf,
    sizes?: DataSizes,
  ) => { readonly tokens: number; readonly around: number },
): Learner<S> {
  return {
    engine: 'policy.engine',
    start: 'policy.model',
    parameters: (settings, shapeOf) => {
      const found = shape(settings, shapeOf);
      return found === null ? null : trainedOf(settings, found).trained;
    },
    memory: (settings, shapeOf, sizes) => {
      const { optimizer, algorithm, policy } = settings;
      const found = shape(settings, shapeOf);
      if (found === null) return null;
      const { tokens, around } = sizesOf(settings, found, shapeOf, sizes);
      const { trained, frozen } = trainedOf(settings, found);
      const copies = (optimizer.ema_decay === null ? 0 : 1) + (algorithm.type === 'sft' ? 0 : 1);
      const activations = flowActivations(found, {
        ...{ images: optimizer.per_device_batch_size, tokens },
        gradientCheckpointing: optimizer.gradient_checkpointing,
      });
      return trainingBytes(trained, activations, copies) + frozenFlowBytes(found, frozen, policy.engine.dtype) + around;
    },
    shape,
    rows: ({ rollout, algorithm }) => {
      const { episodes_per_iteration: episodes, num_steps, timestep_fraction, sde_window } = rollout;
      const levels = algorithm.type !== 'sft' && algorithm.surrogate === 'nft' ? algorithm.nft.levels : null;
      return episodes * (levels ?? sde_window?.size ?? noisySteps(num_steps, timestep_fraction));
    },
  };
}

/** The share of images without words that a model has seen by the end of the run. Null for a model made elsewhere, for which it is unknown. */
export function finalDropout(
  before: number | null,
  {
    algorithm,
    policy,
  }: {
    readonly algorithm: FlowPolicySettings['algorithm'];
    readonly policy: Pick<FlowPolicySettings['policy'], 'model'>;
  },
): number | null {
  if (before === null && policy.model !== null) return null;
  return Math.max(before ?? 0, algorithm.type === 'sft' ? algorithm.sft.condition_dropout : 0);
}

/** Side of an image divided by that of its latents. Null if unknown before the autoencoder is opened. */
export function reductionOf(vae: ModelReference | null, shapeOf: ShapeOf): number | null {
  if (vae === null) return 1;
  const shape = shapeOf(vae);
  return shape !== null && 'kind' in shape && shape.kind === 'autoencoder' ? shape.reduction : null;
}
