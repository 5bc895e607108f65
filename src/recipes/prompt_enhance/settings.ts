/** The recipe `prompt_enhance`: a language model rewrites prompts for a frozen image model, judged by how well the picture fits the user's own words. */
import { join } from 'node:path';
import { z } from 'zod';
import { measuredReward, wordsReward } from '../../rewards/schema/reward.js';
import { measured } from '../../rewards/score/settings.js';
import { wordsAlgorithm } from '../../schema/algorithm.js';
import { rowData } from '../../schema/data.js';
import { imageEnvironment } from '../../schema/image_model.js';
import type { ModelReference } from '../../schema/model.js';
import { idleWhere, positive, positiveInteger, result, section } from '../../schema/mark.js';
import { taskField, trainedFields } from '../../schema/run.js';
import { rollout, validation } from '../../schema/training.js';
import { frozenBytes } from '../memory.js';
import { guidanceNeeds, type Need, type ShapeOf, type TrainedRecipe } from '../recipe.js';
import { noSource } from '../reward_rules.js';
import { textMissing, textNeeds, textPolicyWith, textPrompt, textRules } from '../text_answers/settings.js';
import { decoderNeeds } from '../token_policy.js';
import { supervised } from '../training_rules.js';

/** What a model is told to do, where a config says nothing else. */
export const SYSTEM_PROMPT = `You rewrite short prompts for an image generator. Keep the user's subject and everything that is said of it: colours, numbers, materials, places. Say it in words that an image generator understands, and add what makes a good picture: style, light, composition, detail. Answer with the rewritten prompt alone, in one or two sentences.`;

const told = textPrompt.unwrap();
const sampled = rollout.unwrap();

const schema = z.strictObject({
  ...trainedFields,
  ...taskField('prompt_enhance'),
  algorithm: wordsAlgorithm,
  validation: measured(
    section(
      validation.description ?? '',
      validation
        .unwrap()
        .extend({ temperature: result('Sampling temperature.', positive.default(0.7)) })
        .prefault({}),
    ),
  ),
  rollout: idleWhere(
    supervised,
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
            "Whether all pictures of a prompt begin with the same noise, which follows from the prompt: they then differ by the words alone. false: each of an iteration's answers to it has its own.",
            z.boolean().default(true),
          ),
        })
        .prefault({}),
    ),
  ),
  // Image models are never to be asked for what a language model thought.
  policy: textPolicyWith({ open: '<think>', close: '</think>' }),
  prompt: section(
    textPrompt.description ?? '',
    told
      .extend({
        system: result(
          'A system message that is put first; null for none. The default asks for a rewritten prompt.',
          z.string().min(1).nullable().default(SYSTEM_PROMPT),
        ),
      })
      .prefault({}),
  ),
  data: rowData,
  environment: imageEnvironment,
  reward: idleWhere(supervised, wordsReward),
});
export type PromptEnhanceSettings = z.output<typeof schema>;

export const promptEnhance: TrainedRecipe<PromptEnhanceSettings> = {
  name: 'prompt_enhance',
  trainer: 'this program',
  schema,
  rules: [...textRules, noSource],
  models: [
    'policy.tokenizer',
    'environment.parts.vae',
    'environment.parts.text_encoder',
    'environment.model',
    'policy.model',
  ],
  tokenizers: ['policy.tokenizer'],
  engines: ['policy.engine', 'environment.engine'],
  reward: measuredReward,
  ...decoderNeeds,
  memory: (settings, shapeOf) => {
    const trained = decoderNeeds.memory(settings, shapeOf);
    return trained === null ? null : trained + imageBytes(settings, shapeOf);
  },
  imageMemory: imageBytes,
  images: ({ environment }) =>
    environment.type === 'images_api' ? { kind: 'images_api', settings: environment } : null,
  tinyData: ({ data: { dir, tiny } }) => (tiny === null ? null : join(dir, tiny.folder)),
  needs: (settings, shapeOf) => [...promptNeeds(settings), ...imageNeeds(settings, shapeOf)],
  missing: textMissing,
};

/** Of the image model and of what is around it. */
function imageBytes({ environment }: PromptEnhanceSettings, shapeOf: ShapeOf): number {
  if (environment.type !== 'model') return 0;
  const { model, parts } = environment;
  return [model, parts.vae, parts.text_encoder].reduce((sum, part) => sum + frozenBytes(part, shapeOf), 0);
}

/** Those of the text task; the reward needs the user's own words, whatever the template reads. */
function promptNeeds(settings: PromptEnhanceSettings): Need[] {
  const own = settings.data.columns.prompt;
  return textNeeds(settings).map((need) =>
    need.kind === 'rows' ? { ...need, columns: [...new Set([...need.columns, own])] } : need,
  );
}

function imageNeeds({ environment }: PromptEnhanceSettings, shapeOf: ShapeOf): Need[] {
  if (environment.type !== 'model') return [];
  const { model, parts, guidance_scale: guidance } = environment;
  return [
    ...Object.entries(parts).flatMap(([part, folder]): Need[] =>
      typeof folder === 'string' ? [{ kind: 'flow_part', part: part as 'vae' | 'text_encoder', folder }] : [],
    ),
    ...(typeof model === 'string' ? [{ kind: 'frozen_flow', folder: model, guidance } as const] : []),
    ...guidanceNeeds('environment', model, guidance, shapeOf),
  ];
}

/** What a model is told and how it answers where no config says anything. */
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
