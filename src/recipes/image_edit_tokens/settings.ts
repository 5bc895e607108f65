/** The recipe `image_edit_tokens`: an autoregressive token policy that edits images, trained by SFT or GRPO (EARL). */
import { z } from 'zod';
import { reward } from '../../rewards/schema/reward.js';
import { withMeasure } from '../../rewards/score/settings.js';
import { algorithm } from '../../config/schema/algorithm.js';
import { data } from '../../config/schema/data.js';
import { idleWhere, result, section } from '../../core/schema/mark.js';
import { engine, neededModel } from '../../config/schema/model.js';
import { taskField, trainedFields } from '../../config/schema/run.js';
import { decoderFields } from '../../config/schema/token_policy.js';
import { trainerAnywhere } from '../../config/schema/trainer.js';
import { rollout, validation } from '../../config/schema/training.js';
import { preset, startMissing } from '../recipe.js';
import { frozenBytes } from '../shared/memory.js';
import { noLabeledWords, rewardRules } from '../shared/rules/reward.js';
import { requireValues, type PartialSettings, type Problem } from '../../config/schema/rules.js';
import { servedTrainerRules, TRAINER } from '../shared/tokens/rules.js';
import { decoderPart } from '../shared/tokens/settings.js';
import { tokenGroupRules, sharedRules, wholeBatches, isSupervised } from '../shared/rules/training.js';

const policy = section(
  'The token policy.',
  z.strictObject({
    ...decoderFields,
    trainer: trainerAnywhere,
    tokenizer: neededModel('Text tokenizer and vocabulary: a local path, {hub, revision} or {run, config}.'),
    assistant_prefill: result(
      'Text that every answer starts with. Text that opens a thinking block makes the policy think before it edits.',
      z.string().default(''),
    ),
    emu3_use_logit_processor: result(
      'Sample only tokens that can follow in an image block.',
      z.boolean().default(true),
    ),
    image_header: result(
      "How an answer gets the height*width of its image: 'sampled' lets the policy write it, with any text before the image token (EARL's processor). 'forced' writes it. Without emu3_use_logit_processor, the number of rows decides the size.",
      z.enum(['sampled', 'forced']).default('sampled'),
    ),
    end_after_image: result(
      "Force the end of an answer after its image, as EARL's processor does. Otherwise the policy ends it.",
      z.boolean().default(true),
    ),
    chat_words: result(
      'Write USER: before the source image and ASSISTANT: after the instruction. EARL writes neither.',
      z.boolean().default(false),
    ),
    separate_language_and_vision_vocabs: result(
      'Normalize the log-probability of a token over its own part of the vocabulary: language or vision.',
      z.boolean().default(true),
    ),
  }),
);

const environment = section(
  'The vision-token decoder.',
  z.strictObject({
    model: neededModel('The image tokenizer: a local path, {hub, revision} or {run, config}.'),
    engine,
  }),
);

const schema = z.strictObject({
  ...trainedFields,
  ...taskField('image_edit_tokens'),
  validation: withMeasure(validation),
  algorithm,
  rollout: idleWhere(isSupervised, rollout),
  policy,
  data,
  environment,
  reward: idleWhere(isSupervised, reward),
});
export type ImageEditSettings = z.output<typeof schema>;

export const imageEditTokens = preset<ImageEditSettings>({
  name: 'image_edit_tokens',
  schema,
  pipeline: 'image-to-image',
  usedAt: { key: 'policy.model', of: 'image_edit_tokens' },
  models: ['environment.model', 'policy.tokenizer', 'policy.model'],
  parts: [
    { rules: [...tokenGroupRules, wholeBatches, ...sharedRules] },
    {
      ...decoderPart,
      missing: (settings) =>
        settings.policy.trainer.type === 'onnx' ? startMissing(settings, " (EARL's flat form: model_path)") : [],
    },
    { rules: [...servedTrainerRules, plainTokens, ...rewardRules, noLabeledWords] },
    {
      engines: ['environment.engine'],
      imageMemory: ({ environment, policy, rollout }, shapeOf) => {
        const shape = shapeOf(environment.model);
        if (shape?.kind !== 'vision_tokenizer') return 0;
        const codes = Math.min(policy.model_context_size, rollout.max_response_tokens);
        return frozenBytes(environment.model, shapeOf, codes * shape.patch ** 2);
      },
    },
  ],
});

/** A training server can sample any token, and its log-probabilities cover the whole vocabulary. */
function plainTokens({ policy }: PartialSettings<ImageEditSettings>): readonly Problem[] {
  if (policy?.trainer?.type !== 'tinker') return [];
  const why = 'whose server samples any token of the whole vocabulary';
  return requireValues({ policy }, TRAINER, [
    ['policy.emu3_use_logit_processor', false, why],
    ['policy.separate_language_and_vision_vocabs', false, why],
  ]);
}
