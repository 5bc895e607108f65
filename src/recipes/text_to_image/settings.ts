/** The recipe `text_to_image`: a flow-matching image model that paints what captions say, trained on labelled pictures; an image model for prompt_enhance. */
import { z } from 'zod';
import { flowMatchingAlgorithm } from '../../schema/algorithm.js';
import { captionedData } from '../../schema/data.js';
import { positiveInteger, result, section } from '../../schema/mark.js';
import { flowInitDescription, flowInitFields } from '../../schema/flow_init.js';
import { engine, optionalModel } from '../../schema/model.js';
import { taskField, trainedFields } from '../../schema/run.js';
import { flowValidation } from '../../schema/training.js';
import { ASSUMED_REDUCTION, flowMatchingLearner, flowPartNeeds, freshFlowShape } from '../flow_model.js';
import { captionedPictures, preset } from '../preset.js';
import type { FlowModelShape } from '../recipe.js';
import { whenSet, problemUnless, type PartialSettings, type Problem } from '../../schema/rules.js';
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
  schema,
  pipeline: 'text-to-image',
  usedAt: { key: 'environment.model', of: 'prompt_enhance' },
  parts: [
    captionedPictures,
    {
      rules: [...sharedRules, wholeBatches, patches],
      models: ['environment.parts.vae', 'environment.parts.text_encoder'],
      learns: flowMatchingLearner(shapeOfModel, ({ environment: { width, height, init } }, { patch }) => {
        return { tokens: (width * height) / patch ** 2 + init.text_length };
      }),
      needs: ({ environment }) => flowPartNeeds(environment.parts),
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
