/** The recipe `text_to_image`: a flow-matching image model that paints what captions say, trained on labelled pictures; an image model for prompt_enhance. */
import { join } from 'node:path';
import { z } from 'zod';
import { flowMatchingAlgorithm } from '../../schema/algorithm.js';
import { captionedData } from '../../schema/data.js';
import { positiveInteger, result, section } from '../../schema/mark.js';
import { flowInitDescription, flowInitFields } from '../../schema/flow_init.js';
import { engine, optionalModel } from '../../schema/model.js';
import { taskField, trainedFields } from '../../schema/run.js';
import { flowValidation } from '../../schema/training.js';
import { lossColumns } from '../columns.js';
import { flowActivations, flowModelParameters, trainingBytes } from '../memory.js';
import { captionedNeeds, type FlowModelShape, type TrainedRecipe } from '../recipe.js';
import { problem, type Problem, type Reader } from '../rules.js';
import { sharedRules, wholeBatches } from '../training_rules.js';

const side = (what: string) =>
  result(`${what} of a picture in pixels; those of the dataset are scaled and cropped to it.`, positiveInteger);

const schema = z.strictObject({
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
          text_length: result('Words of a caption that it reads, where no text encoder does.', positiveInteger),
        }),
      ),
      width: side('Width'),
      height: side('Height'),
      parts: section(
        'The frozen models around it.',
        z
          .strictObject({
            vae: optionalModel('The autoencoder between pictures and latents.', 'for pixels themselves'),
            text_encoder: optionalModel(
              'What reads captions.',
              'for the words of the training captions, each by itself',
            ),
          })
          .prefault({}),
      ),
      engine,
    }),
  ),
});
export type TextToImageSettings = z.output<typeof schema>;

function patches(read: Reader): Problem[] {
  const patch = Number(read('environment.init.patch'));
  if (read('environment.parts.vae') !== null || !Number.isInteger(patch)) return [];
  return ['width', 'height'].flatMap((key) => {
    const size = Number(read(`environment.${key}`));
    if (!Number.isInteger(size) || size % patch === 0) return [];
    return problem(`environment.${key}`, `found ${size}; allowed: a multiple of environment.init.patch (${patch})`);
  });
}

export const textToImage: TrainedRecipe<TextToImageSettings> = {
  name: 'text_to_image',
  trainer: 'this program',
  schema,
  rules: [...sharedRules, wholeBatches, patches],
  models: ['environment.parts.vae', 'environment.parts.text_encoder'],
  tokenizers: [],
  engines: ['environment.engine'],
  reward: () => null,
  sampler: () => null,
  parameters: (settings) => flowModelParameters(shapeOfModel(settings)),
  memory: (settings) => {
    const { environment, optimizer } = settings;
    const shape = shapeOfModel(settings);
    const tokens = (environment.width * environment.height) / shape.patch ** 2 + environment.init.text_length;
    const copies = optimizer.ema_decay === null ? 0 : 1;
    const activations = flowActivations(shape, optimizer.per_device_batch_size, tokens);
    return trainingBytes(flowModelParameters(shape), activations, copies);
  },
  shape: (settings) => shapeOfModel(settings),
  stepsPerIteration: () => 1,
  microBatches: ({ algorithm, optimizer }) => Math.ceil(algorithm.sft.batch_size / optimizer.per_device_batch_size),
  columns: () => lossColumns,
  patience: ({ algorithm: { sft } }) =>
    sft.patience === null ? null : { key: 'algorithm.sft.patience', value: sft.patience },
  tinyData: ({ data: { dir, tiny } }) => (tiny === null ? null : join(dir, tiny.folder)),
  needs: (settings) => [
    ...captionedNeeds(settings),
    ...Object.entries(settings.environment.parts).flatMap(([part, folder]) =>
      typeof folder === 'string' ? [{ kind: 'flow_part', part: part as 'vae' | 'text_encoder', folder } as const] : [],
    ),
  ],
  warnings: () => [],
  missing: () => [],
};

/** Of a word, where no text encoder says: as many words as a small world has. */
const ASSUMED_TEXT_WIDTH = 64;
/** A side of a picture by that of latents, of common autoencoders. */
const ASSUMED_REDUCTION = 8;

function shapeOfModel({ environment: { init, parts }, algorithm }: TextToImageSettings): FlowModelShape {
  return {
    kind: 'flow',
    width: init.num_attention_heads * init.attention_head_dim,
    heads: init.num_attention_heads,
    layers: init.num_layers,
    singleLayers: init.num_single_layers,
    textWidth: ASSUMED_TEXT_WIDTH,
    patch: init.patch * (parts.vae === null ? 1 : ASSUMED_REDUCTION),
    imagePrompt: null,
    conditionDropout: algorithm.sft.condition_dropout,
  };
}
