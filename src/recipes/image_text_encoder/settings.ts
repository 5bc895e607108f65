/** The recipe `image_text_encoder`: a CLIP with random initial weights, trained on pictures with captions; the reward `clip` can use the result. */
import { z } from 'zod';
import { contrastiveAlgorithm } from '../../schema/algorithm.js';
import { captionedData } from '../../schema/data.js';
import { section } from '../../schema/mark.js';
import { clipInit, engine } from '../../schema/model.js';
import { taskField, trainedFields } from '../../schema/run.js';
import { FLOAT, trainingBytes } from '../memory.js';
import { captionedPictures, preset } from '../preset.js';
import { requireMultiple, type Rule } from '../../schema/rules.js';
import { sharedRules, wholeBatches } from '../training_rules.js';

const schema = z.strictObject({
  ...trainedFields,
  ...taskField('image_text_encoder'),
  algorithm: contrastiveAlgorithm,
  data: captionedData,
  environment: section('The CLIP that is trained.', z.strictObject({ init: clipInit, engine })),
});
export type ImageTextEncoderSettings = z.output<typeof schema>;

const whole: Rule<ImageTextEncoderSettings> = ({ environment }) => {
  const vision = environment?.init?.vision_config;
  return [
    ...requireMultiple(
      ['environment.init.vision_config.image_size', vision?.image_size],
      ['environment.init.vision_config.patch_size', vision?.patch_size],
      'so that a picture is whole patches',
    ),
    ...(['text_config', 'vision_config'] as const).flatMap((half) =>
      requireMultiple(
        [`environment.init.${half}.hidden_size`, environment?.init?.[half]?.hidden_size],
        [`environment.init.${half}.num_attention_heads`, environment?.init?.[half]?.num_attention_heads],
        'so that heads have one width',
      ),
    ),
  ];
};

export const imageTextEncoder = preset<ImageTextEncoderSettings>({
  name: 'image_text_encoder',
  schema,
  pipeline: 'zero-shot-image-classification',
  usedAt: { key: 'reward.terms[].model', of: 'prompt_enhance' },
  // One process computes the whole batch.
  microBatches: () => 1,
  parts: [
    { rules: [wholeBatches, ...sharedRules, whole] },
    captionedPictures,
    {
      learns: {
        engine: 'environment.engine',
        start: null,
        parameters: parametersOf,
        memory: (settings) => {
          const { environment, algorithm } = settings;
          const { text_config: text, vision_config: vision } = environment.init;
          const patches = (vision.image_size / vision.patch_size) ** 2 + 1;
          const kept =
            text.num_hidden_layers *
              text.max_position_embeddings *
              (KEPT_WIDTHS * text.hidden_size + 2 * text.intermediate_size) +
            vision.num_hidden_layers * patches * (KEPT_WIDTHS * vision.hidden_size + 2 * vision.intermediate_size);
          return trainingBytes(parametersOf(settings), algorithm.sft.batch_size * kept);
        },
        shape: (settings) => ({ kind: 'graphs', bytes: FLOAT * parametersOf(settings) }),
      },
    },
  ],
});

/** Values per unit of a token's width that a layer keeps: its norms, queries, keys, values, and the outputs of attention and layers. */
const KEPT_WIDTHS = 10;

/**
 * Four square matrices and the feed-forward layers of each layer, the embeddings, and the projections; the vocabulary has as many words as merges and
 * bytes.
 */
function parametersOf({ environment: { init } }: ImageTextEncoderSettings): number {
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
