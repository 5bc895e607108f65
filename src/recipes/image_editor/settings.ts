/**
 * The recipe `image_editor`: a flow-matching model that edits images, conditioned on the hidden states of a frozen vision-language model that has
 * read the image, the instruction and the labeled response. edit_response draws with it.
 */
import { z } from 'zod';
import { wordsReward } from '../../rewards/schema/reward.js';
import { withMeasure } from '../../rewards/score/settings.js';
import { flowMatchingAlgorithm } from '../../config/schema/algorithm.js';
import { imageEditData } from '../../config/schema/seen_data.js';
import { editorReads } from '../../config/schema/editor.js';
import { idleWhere, positiveInteger, result, section } from '../../core/schema/mark.js';
import { flowInitDescription, flowInitFields } from '../../config/schema/image_model.js';
import { engine, neededModel, optionalModel } from '../../config/schema/model.js';
import { taskField, trainedFields } from '../../config/schema/run.js';
import { seeingFields, seeingPrompt } from '../../config/schema/token_policy.js';
import { flowValidation } from '../../config/schema/training.js';
import { ASSUMED_REDUCTION, flowMatchingLearner, freshFlowShape } from '../shared/flow/settings.js';
import { decoderParameters, type FlowModelShape, type ShapeOf } from '../shared/memory.js';
import { preset } from '../recipe.js';
import { rewardRules } from '../shared/rules/reward.js';
import { sharedRules, wholeBatches } from '../shared/rules/training.js';

const { pixels, model_context_size } = seeingFields;

const schema = z.strictObject({
  ...trainedFields,
  ...taskField('image_editor'),
  validation: withMeasure(flowValidation),
  algorithm: flowMatchingAlgorithm,
  prompt: seeingPrompt,
  data: imageEditData,
  reader: section(
    'The frozen vision-language model whose hidden states condition the editor.',
    z.strictObject({
      model: neededModel('A local path, {hub, revision} or {run, config}.'),
      told: editorReads,
      pixels,
      model_context_size,
      engine,
    }),
  ),
  environment: section(
    'The model that is trained to edit.',
    z.strictObject({
      init: section(
        flowInitDescription,
        z.strictObject({
          ...flowInitFields,
        }),
      ),
      parts: section(
        'The frozen models around it.',
        z
          .strictObject({
            vae: optionalModel('The autoencoder between images and latents.', 'for pixels themselves'),
          })
          .prefault({}),
      ),
      num_steps: result('ODE solver steps in held-out evaluation.', positiveInteger.default(20)),
      engine,
    }),
  ),
  reward: idleWhere(() => true, wordsReward),
});
export type ImageEditorSettings = z.output<typeof schema>;

export const imageEditor = preset<ImageEditorSettings>({
  name: 'image_editor',
  schema,
  pipeline: 'image-to-image',
  usedAt: { key: 'environment.model', of: 'edit_response' },
  parts: [
    {
      rules: [...sharedRules, wholeBatches, ...rewardRules],
      models: ['environment.parts.vae', 'reader.model'],
      engines: ['reader.engine'],
      learns: flowMatchingLearner(shapeOfModel, ({ reader, data }, { patch }, shapeOf) => {
        const side = data.tiny === null ? ASSUMED_SIDE : data.tiny.grid * data.tiny.cell;
        const read = shapeOf(reader.model);
        return {
          tokens: side ** 2 / patch ** 2 + reader.model_context_size,
          frozen: read === null || 'kind' in read ? 0 : decoderParameters(read),
        };
      }),
    },
  ],
});

/** Training of the model that reads: none. */
export const NOTHING_TRAINS = { mm_vision: false, mm_mlp: false, mm_llm: false } as const;

/** Width of the hidden states of a model that does not exist yet. */
const ASSUMED_WIDTH = 1024;
/** Side of an image in pixels, if unknown. */
const ASSUMED_SIDE = 1024;

function shapeOfModel(
  { environment: { init, parts }, reader, algorithm }: ImageEditorSettings,
  shapeOf: ShapeOf,
): FlowModelShape {
  const read = shapeOf(reader.model);
  return freshFlowShape(init, {
    textWidth: read === null || 'kind' in read ? ASSUMED_WIDTH : read.hidden_size,
    reduction: parts.vae === null ? 1 : ASSUMED_REDUCTION,
    conditionDropout: algorithm.sft.condition_dropout,
  });
}
