/** Shared settings of recipes with a flow transformer: its shape, the models around it, and its memory if it only generates. */
import type { z } from 'zod';
import type { HeldDtype } from '../../../core/safetensors.js';
import type { flowInitFields } from '../../../config/schema/image_model.js';
import type { ModelReference } from '../../../config/schema/model.js';
import type { TrainedSettings } from '../../../config/schema/run.js';
import {
  flowActivations,
  flowModelParameters,
  frozenBytes,
  frozenWordsBytes,
  trainingBytes,
  type FlowModelShape,
  type ShapeOf,
} from '../memory.js';
import type { Learner, Part } from '../../recipe.js';

/** Pixels on a side of an image for each latent on a side, of common autoencoders. */
export const ASSUMED_REDUCTION = 8;

/** The shape of a transformer with random weights; `reduction` is the number of pixels per latent along a side. */
export function freshFlowShape(
  init: z.output<z.ZodObject<typeof flowInitFields>>,
  {
    reduction,
    ...rest
  }: Pick<FlowModelShape, 'textWidth' | 'conditionDropout'> & {
    readonly imagePrompt?: FlowModelShape['imagePrompt'];
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
      readonly engine: { readonly dtype: HeldDtype };
      /** Absent where images have the size of their sources. */
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
