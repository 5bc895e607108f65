/**
 * The recipe `image_editor`: a flow-matching model that edits pictures, told what to do by the hidden states of a frozen vision-language model
 * that has read picture, instruction and labelled response. It is what edit_response draws with.
 */
import { join } from 'node:path';
import { z } from 'zod';
import { measuredReward, wordsReward } from '../../rewards/schema/reward.js';
import { measured } from '../../rewards/score/settings.js';
import { flowMatchingAlgorithm } from '../../schema/algorithm.js';
import { picturedData } from '../../schema/seen_data.js';
import { told } from '../../schema/editor.js';
import { idleWhere, positiveInteger, result, section } from '../../schema/mark.js';
import { flowInitDescription, flowInitFields } from '../../schema/flow_init.js';
import { engine, neededModel, optionalModel } from '../../schema/model.js';
import { taskField, trainedFields } from '../../schema/run.js';
import { flowValidation } from '../../schema/training.js';
import { lossColumns } from '../columns.js';
import { exampleConversation } from '../example_conversation.js';
import { decoderParameters, flowActivations, flowModelParameters, trainingBytes } from '../memory.js';
import type { FlowModelShape, Need, ShapeOf, TrainedRecipe } from '../recipe.js';
import { rewardRules } from '../reward_rules.js';
import { folderOf, picturedNeeds, seeingPrompt } from '../seeing_words.js';
import { seeingFields } from '../token_policy.js';
import { sharedRules, wholeBatches } from '../training_rules.js';

const { pixels, model_context_size } = seeingFields;

const schema = z.strictObject({
  ...trainedFields,
  ...taskField('image_editor'),
  validation: measured(flowValidation),
  algorithm: flowMatchingAlgorithm,
  prompt: seeingPrompt,
  data: picturedData,
  reader: section(
    'The frozen vision-language model whose hidden states the edit is told by.',
    z.strictObject({
      model: neededModel('A local path, {hub, revision} or {run, config}.'),
      told,
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
            vae: optionalModel('The autoencoder between pictures and latents.', 'for pixels themselves'),
          })
          .prefault({}),
      ),
      num_steps: result("Steps of the ODE's solver in held-out evaluation.", positiveInteger.default(20)),
      engine,
    }),
  ),
  reward: idleWhere(() => true, wordsReward),
});
export type ImageEditorSettings = z.output<typeof schema>;

export const imageEditor: TrainedRecipe<ImageEditorSettings> = {
  name: 'image_editor',
  trainer: 'this program',
  schema,
  rules: [...sharedRules, wholeBatches, ...rewardRules],
  models: ['environment.parts.vae', 'reader.model'],
  tokenizers: [],
  engines: ['environment.engine', 'reader.engine'],
  reward: measuredReward,
  sampler: () => null,
  parameters: (settings, shapeOf) => flowModelParameters(shapeOfModel(settings, shapeOf)),
  memory: (settings, shapeOf) => {
    const { reader, optimizer, data } = settings;
    const shape = shapeOfModel(settings, shapeOf);
    const side = data.tiny === null ? ASSUMED_SIDE : data.tiny.grid * data.tiny.cell;
    const tokens = side ** 2 / shape.patch ** 2 + reader.model_context_size;
    const copies = optimizer.ema_decay === null ? 0 : 1;
    const activations = flowActivations(shape, optimizer.per_device_batch_size, tokens);
    const read = shapeOf(reader.model);
    const frozen = read === null || 'kind' in read ? 0 : decoderParameters(read);
    return trainingBytes(flowModelParameters(shape), activations, copies, frozen);
  },
  shape: shapeOfModel,
  stepsPerIteration: () => 1,
  microBatches: ({ algorithm, optimizer }) => Math.ceil(algorithm.sft.batch_size / optimizer.per_device_batch_size),
  columns: () => lossColumns,
  patience: ({ algorithm: { sft } }) =>
    sft.patience === null ? null : { key: 'algorithm.sft.patience', value: sft.patience },
  tinyData: ({ data: { dir, tiny } }) => (tiny === null ? null : join(dir, tiny.folder)),
  needs,
  warnings: () => [],
  missing: () => [],
};

function needs(settings: ImageEditorSettings): Need[] {
  const { data, reader, environment, prompt } = settings;
  const folder = folderOf(reader.model);
  const { model_context_size: contextSize } = reader;
  const { vae } = environment.parts;
  return [
    ...picturedNeeds({ data }).map((need) =>
      need.kind === 'rows' ? { ...need, columns: [...need.columns, data.columns.target] } : need,
    ),
    ...(folder === null
      ? []
      : ([
          { kind: 'decoder', folder, lora: null, contextSize, sees: NOTHING_TRAINS },
          { kind: 'tokenizer', folder, conversation: exampleConversation(prompt, 'words and pictures'), model: folder },
        ] as const)),
    ...(typeof vae === 'string' ? [{ kind: 'flow_part', part: 'vae', folder: vae } as const] : []),
  ];
}

/** Of the model that reads. */
export const NOTHING_TRAINS = { mm_vision: false, mm_mlp: false, mm_llm: false } as const;

/** Width of the hidden states of a model that is not there yet. */
const ASSUMED_WIDTH = 1024;
/** Side of a picture in pixels, where nobody says. */
const ASSUMED_SIDE = 1024;
/** A side of a picture by that of latents, of common autoencoders. */
const ASSUMED_REDUCTION = 8;

function shapeOfModel(
  { environment: { init, parts }, reader, algorithm }: ImageEditorSettings,
  shapeOf: ShapeOf,
): FlowModelShape {
  const read = shapeOf(reader.model);
  return {
    kind: 'flow',
    width: init.num_attention_heads * init.attention_head_dim,
    heads: init.num_attention_heads,
    layers: init.num_layers,
    singleLayers: init.num_single_layers,
    textWidth: read === null || 'kind' in read ? ASSUMED_WIDTH : read.hidden_size,
    patch: init.patch * (parts.vae === null ? 1 : ASSUMED_REDUCTION),
    imagePrompt: null,
    conditionDropout: algorithm.sft.condition_dropout,
  };
}
