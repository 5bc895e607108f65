/** The recipe `image_edit_tokens`: an autoregressive token policy that edits images, trained by SFT or GRPO (EARL). */
import { join } from 'node:path';
import { z } from 'zod';
import { reward } from '../../rewards/schema/reward.js';
import { algorithm } from '../../schema/algorithm.js';
import { data } from '../../schema/data.js';
import { idleWhere, positiveInteger, result, section, type ReadSettings } from '../../schema/mark.js';
import { decoderInit, engine, lora, modelReference } from '../../schema/model.js';
import { taskField, trainedFields } from '../../schema/run.js';
import { rollout } from '../../schema/training.js';
import { lossColumns, rewardColumns } from '../columns.js';
import { adapterParameters, decoderActivations, decoderParameters, trainingBytes } from '../memory.js';
import { policyRules } from '../policy_rules.js';
import type { ModelShape, ShapeOf, TrainedRecipe } from '../recipe.js';
import { noLabelledWords, rewardRules } from '../reward_rules.js';
import { samplerElsewhere, samplerRules } from '../sampler.js';
import { groupRules, sharedRules, wholeBatches } from '../training_rules.js';

const policy = section(
  'The token policy.',
  z.strictObject({
    model: result(
      'The start: a local path, {hub, revision} or {run, config}; null trains policy.init.',
      modelReference.nullable().default(null),
      {
        allowed: 'a local path, {hub, revision}, {run, config}, or null with policy.init',
      },
    ),
    init: decoderInit.nullable().default(null).meta({ description: 'The architecture where policy.model is null.' }),
    lora: lora
      .nullable()
      .default(null)
      .meta({ ...lora.meta(), absent: null }),
    tokenizer: result(
      'Text tokenizer and vocabulary: a local path, {hub, revision} or {run, config}.',
      modelReference,
      {
        allowed: 'a local path, {hub, revision} or {run, config}',
      },
    ),
    model_context_size: result('Longest sequence of prompt and answer, in tokens.', positiveInteger.default(4096)),
    assistant_prefill: result(
      'Text that every answer is made to begin with; one that opens a thinking block makes the policy think before it edits.',
      z.string().default(''),
    ),
    emu3_use_logit_processor: result(
      'Sample only tokens that can follow in an image block.',
      z.boolean().default(true),
    ),
    image_header: result(
      "Who writes height*width of an answer's image: 'sampled', the policy, which may write any text before the image token (EARL's processor), or 'forced'. Without meaning without the processor, but that a sampled header is not read: the rows tell the image's size.",
      z.enum(['sampled', 'forced']).default('sampled'),
      { absent: 'forced' },
    ),
    end_after_image: result(
      "Force the end of an answer after its image, as EARL's processor does; else it ends where the policy ends it.",
      z.boolean().default(true),
      { absent: false },
    ),
    chat_words: result(
      "Prompts say USER: before the source image and ASSISTANT: after the instruction. EARL's say neither.",
      z.boolean().default(false),
      { absent: true },
    ),
    separate_language_and_vision_vocabs: result(
      'Take log-probabilities over the language or the vision part of the vocabulary, whichever the token belongs to.',
      z.boolean().default(true),
    ),
    engine,
  }),
);

const environment = section(
  'The vision-token decoder.',
  z.strictObject({
    model: result('The image tokenizer: a local path, {hub, revision} or {run, config}.', modelReference, {
      allowed: 'a local path, {hub, revision} or {run, config}',
    }),
    engine,
  }),
);

/** Labels alone teach a supervised run: what it samples, and what scores that, is only looked at. */
const supervised = (read: ReadSettings): boolean => read('algorithm.type') === 'sft';

const schema = z.strictObject({
  ...trainedFields,
  ...taskField('image_edit_tokens'),
  algorithm,
  rollout: idleWhere(supervised, rollout),
  policy,
  data,
  environment,
  reward: idleWhere(supervised, reward),
});
export type ImageEditSettings = z.output<typeof schema>;

export const imageEditTokens: TrainedRecipe<ImageEditSettings> = {
  name: 'image_edit_tokens',
  trainer: 'this program',
  schema,
  rules: [
    ...groupRules,
    wholeBatches,
    ...sharedRules,
    ...policyRules,
    ...samplerRules,
    ...rewardRules,
    noLabelledWords,
  ],
  models: ['environment.model', 'policy.tokenizer', 'policy.model'],
  engines: ['policy.engine', 'environment.engine'],
  reward: (settings) => settings.reward,
  sampler: samplerElsewhere,
  parameters: (settings, shapeOf) => {
    const shape = shapeOfPolicy(settings, shapeOf);
    return shape === null ? null : trainedParameters(settings, shape);
  },
  memory: (settings, shapeOf) => {
    const { policy, optimizer, algorithm } = settings;
    const shape = shapeOfPolicy(settings, shapeOf);
    if (shape === null) return null;
    const activations = decoderActivations(shape, optimizer.per_device_batch_size, policy.model_context_size);
    // The moving averages and the frozen reference, which shares all weights with a model that has an adapter.
    const reference = algorithm.type === 'grpo' && policy.lora === null ? 1 : 0;
    const copies = (optimizer.ema_decay === null ? 0 : 1) + reference;
    const frozen = policy.lora === null ? 0 : decoderParameters(shape);
    return trainingBytes(trainedParameters(settings, shape), activations, copies, frozen);
  },
  shape: shapeOfPolicy,
  stepsPerIteration,
  microBatches: (settings) => {
    const { algorithm, rollout, optimizer } = settings;
    const answers =
      algorithm.type === 'sft' ? algorithm.sft.batch_size : rollout.episodes_per_iteration / algorithm.minibatches;
    return Math.ceil(answers / optimizer.per_device_batch_size);
  },
  columns: ({ algorithm }) => (algorithm.type === 'grpo' ? rewardColumns : lossColumns),
  patience: ({ algorithm }) =>
    algorithm.type === 'grpo' || algorithm.sft.patience === null
      ? null
      : { key: 'algorithm.sft.patience', value: algorithm.sft.patience },
  tinyData: ({ data: { dir, tiny } }) => (tiny === null ? null : join(dir, tiny.folder)),
  warnings: (settings) => {
    const { algorithm } = settings;
    if (algorithm.type !== 'grpo' || algorithm.clip_range === null || stepsPerIteration(settings) > 1) return [];
    return [
      'algorithm.clip_range has no effect: with one optimizer step an iteration the ratio is 1; raise algorithm.minibatches or inner_epochs, or set it to null',
    ];
  },
  missing: ({ policy }) =>
    policy.model === null && policy.init === null
      ? [
          "policy.model is null: set it to a local path, {hub, revision} or {run, config} (EARL's flat form: model_path), or set policy.init to start from random weights",
        ]
      : [],
};

function stepsPerIteration({ algorithm }: ImageEditSettings): number {
  return algorithm.type === 'grpo' ? algorithm.inner_epochs * algorithm.minibatches : 1;
}

function trainedParameters({ policy: { lora } }: ImageEditSettings, shape: ModelShape): number {
  return lora === null ? decoderParameters(shape) : adapterParameters(shape, lora.rank);
}

function shapeOfPolicy({ policy: { init, model } }: ImageEditSettings, shapeOf: ShapeOf): ModelShape | null {
  return init ?? (model === null ? null : shapeOf(model));
}
