/**
 * The recipe `prompt_enhance`: a language model rewrites prompts for a frozen image model. The reward is how well the
 * image fits the user's own words.
 */
import { z } from 'zod';
import { wordsReward } from '../../rewards/schema/reward.js';
import { withMeasure } from '../../rewards/score/settings.js';
import { wordsAlgorithm } from '../../config/schema/algorithm.js';
import { rowData } from '../../config/schema/data.js';
import { imageEnvironment } from '../../config/schema/image_model.js';
import type { ModelReference } from '../../config/schema/model.js';
import { idleWhere, positive, positiveInteger, result, section } from '../../core/schema/mark.js';
import { taskField, trainedFields } from '../../config/schema/run.js';
import { textPolicyWith, textPrompt } from '../../config/schema/token_policy.js';
import { rollout, validation } from '../../config/schema/training.js';
import { frozenFlowPart } from '../shared/flow/settings.js';
import { preset } from '../recipe.js';
import { noSource } from '../shared/rules/reward.js';
import { textParts } from '../text_answers/settings.js';
import { isSupervised } from '../shared/rules/training.js';

/** Default system message. */
export const SYSTEM_PROMPT = `You rewrite short prompts for an image generator. Keep the user's subject and everything that is said of it: colours, numbers, materials, places. Say it in words that an image generator understands, and add what makes a good picture: style, light, composition, detail. Answer with the rewritten prompt alone, in one or two sentences.`;

const promptFields = textPrompt.unwrap();
const sampled = rollout.unwrap();

const schema = z.strictObject({
  ...trainedFields,
  ...taskField('prompt_enhance'),
  algorithm: wordsAlgorithm,
  validation: withMeasure(
    section(
      validation.description ?? '',
      validation
        .unwrap()
        .extend({ temperature: result('Sampling temperature.', positive.default(0.7)) })
        .prefault({}),
    ),
  ),
  rollout: idleWhere(
    isSupervised,
    section(
      rollout.description ?? '',
      sampled
        .extend({
          max_response_tokens: result(
            sampled.shape.max_response_tokens.description ?? '',
            positiveInteger.default(100),
          ),
          temperature: result('Sampling temperature.', positive.default(0.7)),
          same_latent: result(
            'Start all images of a prompt from the same noise, so that they differ only by the words. With false, each answer of an iteration has its own noise.',
            z.boolean().default(true),
          ),
        })
        .prefault({}),
    ),
  ),
  // An image model must never get a language model's thoughts.
  policy: textPolicyWith({ open: '<think>', close: '</think>' }),
  prompt: section(
    textPrompt.description ?? '',
    promptFields
      .extend({
        system: result(
          'The system message. null for none. The default asks for a rewritten prompt.',
          z.string().min(1).nullable().default(SYSTEM_PROMPT),
        ),
      })
      .prefault({}),
  ),
  data: rowData,
  environment: imageEnvironment,
  reward: idleWhere(isSupervised, wordsReward),
});
export type PromptEnhanceSettings = z.output<typeof schema>;

export const promptEnhance = preset<PromptEnhanceSettings>({
  name: 'prompt_enhance',
  schema,
  pipeline: 'text-generation',
  usedAt: { key: 'policy.model', of: 'prompt_enhance' },
  images: ({ environment }) =>
    environment.type === 'images_api' ? { kind: 'images_api', settings: environment } : null,
  parts: [...textParts, { rules: [noSource] }, frozenFlowPart(['vae', 'text_encoder'])],
});

/** Default prompt and answer settings of a model. */
export function defaultEnhancing(
  model: ModelReference,
): Pick<PromptEnhanceSettings, 'policy' | 'prompt' | 'rollout' | 'data'> {
  const { policy, prompt, rollout: answered } = schema.shape;
  return {
    policy: policy.parse({ model }),
    prompt: prompt.parse({}),
    rollout: answered.parse({}),
    data: schema.shape.data.parse({ train: [], validation: [] }),
  };
}
