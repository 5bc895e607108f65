/**
 * Recipes that train a model for images: an autoencoder, an image tokenizer, a CLIP, and a flow model that turns
 * captions into images.
 */
import { z } from 'zod';
import {
  autoencoderAlgorithm,
  contrastiveAlgorithm,
  flowMatchingAlgorithm,
  tokenizerAlgorithm,
  type WordsSftSettings,
} from '../../config/schema/algorithm.js';
import { benchImages, imageData, captionedData } from '../../config/schema/data.js';
import { section, positiveInteger, result } from '../../core/schema/mark.js';
import { autoencoderInit, engine, imageTokenizerInit, clipInit, optionalModel } from '../../config/schema/model.js';
import { taskField, trainedFields, type TrainedSettings } from '../../config/schema/run.js';
import { trainingBytes, FLOAT, type FlowModelShape, type ModelShape } from '../shared/memory.js';
import { preset, type TrainedRecipe } from '../recipe.js';
import {
  whenSet,
  problem,
  problemUnless,
  requireMultiple,
  type Rule,
  type PartialSettings,
  type Problem,
} from '../../config/schema/rules.js';
import { sharedRules, wholeBatches } from '../shared/rules/training.js';
import { flowInitDescription, flowInitFields } from '../../config/schema/image_model.js';
import { flowValidation } from '../../config/schema/training.js';
import { ASSUMED_REDUCTION, flowMatchingLearner, freshFlowShape } from '../shared/flow/settings.js';

/** Settings of a network that trains on whole batches with its own loss. */
function networkSchema<N extends string, A extends z.ZodType, D extends z.ZodType, I extends z.ZodType>(
  task: N,
  algorithm: A,
  data: D,
  [description, init]: readonly [description: string, init: I],
) {
  const environment = section(description, z.strictObject({ init, engine }));
  return z.strictObject({ ...trainedFields, ...taskField(task), algorithm, data, environment });
}

const autoencoderSchema = networkSchema('image_autoencoder', autoencoderAlgorithm, benchImages, [
  'The autoencoder that is trained.',
  autoencoderInit,
]);
const tokenizerSchema = networkSchema('image_tokenizer', tokenizerAlgorithm, imageData, [
  'The image tokenizer that is trained.',
  imageTokenizerInit,
]);
const encoderSchema = networkSchema('image_text_encoder', contrastiveAlgorithm, captionedData, [
  'The CLIP that is trained.',
  clipInit,
]);
export type ImageAutoencoderSettings = z.output<typeof autoencoderSchema>;
export type ImageTokenizerSettings = z.output<typeof tokenizerSchema>;
export type ImageTextEncoderSettings = z.output<typeof encoderSchema>;

/**
 * A recipe whose single process computes each batch whole. `kept` is the number of values kept for the backward pass,
 * or null if unknown.
 */
function networkRecipe<S extends TrainedSettings & { readonly algorithm: WordsSftSettings }>({
  rule,
  parameters,
  kept,
  shape,
  ...own
}: Pick<TrainedRecipe<S>, 'name' | 'schema' | 'pipeline' | 'usedAt'> & {
  readonly rule: Rule<S>;
  readonly parameters: (settings: S) => number;
  readonly kept: (settings: S) => number | null;
  readonly shape: (settings: S) => ModelShape | null;
}): TrainedRecipe<S> {
  const memory = (settings: S): number | null => {
    const values = kept(settings);
    return values === null ? null : trainingBytes(parameters(settings), values);
  };
  return preset<S>({
    ...own,
    microBatches: () => 1,
    parts: [
      { rules: [wholeBatches, ...(sharedRules as readonly Rule<S>[]), rule] },
      { learns: { engine: 'environment.engine', start: null, parameters, memory, shape } },
    ],
  });
}

/**
 * Values kept per position and channel of a level: convolutions, norms and activations of its residual blocks, in
 * encoder and decoder.
 */
const KEPT_PER_BLOCK = 12;

/** The autoencoder of latent diffusion. Channels must be divisible by the groups, and image sides by the reduction. */
export const imageAutoencoder = networkRecipe<ImageAutoencoderSettings>({
  name: 'image_autoencoder',
  schema: autoencoderSchema,
  pipeline: null,
  usedAt: { key: 'policy.parts.vae', of: 'ip_adapter' },
  rule: ({ data, environment }) =>
    whenSet([environment?.init?.block_out_channels], (channels) => {
      const factor = 2 ** (channels.length - 1);
      return [
        ...whenSet([environment?.init?.norm_num_groups], (groups) =>
          whenSet([channels.find((one) => one % groups !== 0)], (uneven) =>
            problem(
              'environment.init.block_out_channels',
              `found ${uneven}; allowed: multiples of environment.init.norm_num_groups (${groups})`,
            ),
          ),
        ),
        ...(['width', 'height'] as const).flatMap((side) =>
          whenSet([data?.tiny?.[side]], (size) =>
            problemUnless(
              size % factor === 0,
              `data.tiny.${side}`,
              `found ${size}; allowed: a multiple of ${factor}, as environment.init.block_out_channels has ${channels.length} levels`,
            ),
          ),
        ),
      ];
    }),
  // 3 x 3 kernels: two per residual block of encoder and decoder, those of the lowest level, and those between levels.
  parameters: ({ environment: { init } }) => {
    const { block_out_channels: channels, layers_per_block } = init;
    const blocks = 2 * layers_per_block + 1;
    const levels = channels.reduce((sum, width, level) => {
      const before = channels[Math.max(0, level - 1)];
      return sum + 9 * (2 * blocks * width ** 2 + 2 * before * width);
    }, 0);
    return levels + 9 * 8 * channels[channels.length - 1] ** 2;
  },
  kept: ({ environment, data, optimizer }) => {
    if (data.tiny === null) return null;
    const { block_out_channels: channels, layers_per_block } = environment.init;
    const pixels = data.tiny.width * data.tiny.height;
    const blocks = 2 * layers_per_block + 1;
    const kept = channels.reduce(
      (sum, width, level) => sum + (KEPT_PER_BLOCK * blocks * width * pixels) / 4 ** level,
      0,
    );
    return optimizer.per_device_batch_size * kept;
  },
  shape: ({ environment }) => ({ kind: 'autoencoder', reduction: reductionOf(environment) }),
});

/** Side of an image divided by the side of its latents. */
export function reductionOf({ init }: ImageAutoencoderSettings['environment']): number {
  return 2 ** (init.block_out_channels.length - 1);
}

/** Number of convolutions whose activations a micro-batch keeps. */
const CONVOLUTIONS = 20;

/** A VQ image tokenizer. */
export const imageTokenizer = networkRecipe<ImageTokenizerSettings>({
  name: 'image_tokenizer',
  schema: tokenizerSchema,
  pipeline: 'image-feature-extraction',
  usedAt: { key: 'environment.model', of: 'image_edit_tokens' },
  rule: ({ data, environment }) =>
    whenSet([data?.tiny?.grid, data?.tiny?.cell, environment?.init?.patch], (grid, cell, patch) =>
      problemUnless(
        (grid * cell) % patch === 0,
        'environment.init.patch',
        `found ${patch}; allowed: a divisor of the image's side (${grid * cell} pixels)`,
      ),
    ),
  // The codebook, and two matrices each way: between pixels and the hidden layer, and between the hidden layer and
  // codes.
  parameters: ({ environment: { init } }) => {
    const { hidden, codebook_size, code_dim, patch } = init;
    return 2 * hidden * (3 * patch * patch + code_dim) + codebook_size * code_dim;
  },
  kept: ({ environment, data, optimizer }) => {
    if (data.tiny === null) return null;
    const { hidden, patch } = environment.init;
    const codes = ((data.tiny.grid * data.tiny.cell) / patch) ** 2;
    return optimizer.per_device_batch_size * CONVOLUTIONS * codes * hidden;
  },
  shape: () => null,
});

/**
 * Values kept per layer and unit of a token's width: norms, queries, keys, values, and outputs of attention and layers.
 */
const KEPT_WIDTHS = 10;

/** A CLIP with random initial weights. The reward term `clip` can use the trained model. */
export const imageTextEncoder = networkRecipe<ImageTextEncoderSettings>({
  name: 'image_text_encoder',
  schema: encoderSchema,
  pipeline: 'zero-shot-image-classification',
  usedAt: { key: 'reward.terms[].model', of: 'prompt_enhance' },
  rule: ({ environment }) => {
    const vision = environment?.init?.vision_config;
    return [
      ...requireMultiple(
        ['environment.init.vision_config.image_size', vision?.image_size],
        ['environment.init.vision_config.patch_size', vision?.patch_size],
        'so that an image consists of whole patches',
      ),
      ...(['text_config', 'vision_config'] as const).flatMap((half) =>
        requireMultiple(
          [`environment.init.${half}.hidden_size`, environment?.init?.[half]?.hidden_size],
          [`environment.init.${half}.num_attention_heads`, environment?.init?.[half]?.num_attention_heads],
          'so that all heads have one width',
        ),
      ),
    ];
  },
  parameters: clipParameters,
  kept: ({ environment, algorithm }) => {
    const { text_config: text, vision_config: vision } = environment.init;
    const patches = (vision.image_size / vision.patch_size) ** 2 + 1;
    const kept =
      text.num_hidden_layers *
        text.max_position_embeddings *
        (KEPT_WIDTHS * text.hidden_size + 2 * text.intermediate_size) +
      vision.num_hidden_layers * patches * (KEPT_WIDTHS * vision.hidden_size + 2 * vision.intermediate_size);
    return algorithm.sft.batch_size * kept;
  },
  shape: (settings) => ({ kind: 'graphs', bytes: FLOAT * clipParameters(settings) }),
});

/**
 * Four square matrices and the feed-forward layers of each layer, the embeddings, and the projections. The vocabulary
 * consists of merges and bytes.
 */
function clipParameters({ environment: { init } }: ImageTextEncoderSettings): number {
  const { text_config: text, vision_config: vision, projection_dim: space } = init;
  const layers = (half: typeof text | typeof vision): number =>
    half.num_hidden_layers * half.hidden_size * (4 * half.hidden_size + 2 * half.intermediate_size);
  const words = text.merges + 2 * 256 + 2;
  const patches = (vision.image_size / vision.patch_size) ** 2 + 1;
  return (
    layers(text) +
    layers(vision) +
    (words + text.max_position_embeddings + space) * text.hidden_size +
    (3 * vision.patch_size ** 2 + patches + space) * vision.hidden_size
  );
}

const side = (what: string) =>
  result(`${what} of an image in pixels. Images of the dataset are scaled and cropped to it.`, positiveInteger);

const paintingSchema = z.strictObject({
  ...trainedFields,
  ...taskField('text_to_image'),
  validation: flowValidation,
  algorithm: flowMatchingAlgorithm,
  data: captionedData,
  environment: section(
    'The image model that is trained.',
    z.strictObject({
      init: section(
        flowInitDescription,
        z.strictObject({
          ...flowInitFields,
          text_length: result(
            'The number of caption words that the model reads if there is no text encoder.',
            positiveInteger,
          ),
        }),
      ),
      width: side('Width'),
      height: side('Height'),
      parts: section(
        'The frozen models around it.',
        z
          .strictObject({
            vae: optionalModel('The autoencoder between images and latents.', 'for pixels themselves'),
            text_encoder: optionalModel(
              'The text encoder of captions.',
              'for one embedding per word of the training captions',
            ),
          })
          .prefault({}),
      ),
      engine,
    }),
  ),
});
export type TextToImageSettings = z.output<typeof paintingSchema>;

function patches({ environment }: PartialSettings<TextToImageSettings>): readonly Problem[] {
  if (environment?.parts?.vae !== null) return [];
  return (['width', 'height'] as const).flatMap((key) =>
    whenSet([environment[key], environment.init?.patch], (size, patch) =>
      problemUnless(
        size % patch === 0,
        `environment.${key}`,
        `found ${size}; allowed: a multiple of environment.init.patch (${patch})`,
      ),
    ),
  );
}

export const textToImage = preset<TextToImageSettings>({
  name: 'text_to_image',
  schema: paintingSchema,
  pipeline: 'text-to-image',
  usedAt: { key: 'environment.model', of: 'prompt_enhance' },
  parts: [
    {
      rules: [...sharedRules, wholeBatches, patches],
      models: ['environment.parts.vae', 'environment.parts.text_encoder'],
      learns: flowMatchingLearner(shapeOfModel, ({ environment: { width, height, init } }, { patch }) => {
        return { tokens: (width * height) / patch ** 2 + init.text_length };
      }),
    },
  ],
});

/** Width of a word without a text encoder: the number of words in a small world. */
const ASSUMED_TEXT_WIDTH = 64;

function shapeOfModel({ environment: { init, parts }, algorithm }: TextToImageSettings): FlowModelShape {
  return freshFlowShape(init, {
    textWidth: ASSUMED_TEXT_WIDTH,
    reduction: parts.vae === null ? 1 : ASSUMED_REDUCTION,
    conditionDropout: algorithm.sft.condition_dropout,
  });
}
