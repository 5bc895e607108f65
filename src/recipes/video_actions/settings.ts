/** The recipe `video_actions`: a vision-language model answers questions about videos in words, trained by GRPO or by SFT. */
import { join } from 'node:path';
import { z } from 'zod';
import { wordsReward } from '../../rewards/schema/reward.js';
import { wordsAlgorithm } from '../../schema/algorithm.js';
import { questionData } from '../../schema/data.js';
import { idleWhere, result, section, type ReadSettings } from '../../schema/mark.js';
import type { ModelReference } from '../../schema/model.js';
import { taskField, trainedFields } from '../../schema/run.js';
import { rollout } from '../../schema/training.js';
import { policyRules } from '../policy_rules.js';
import type { Need, TrainedRecipe } from '../recipe.js';
import { noImages, rewardRules } from '../reward_rules.js';
import { problem, type Problem, type Reader } from '../rules.js';
import { optionalModel, seeingFields, seeingNeeds } from '../token_policy.js';
import { sharedRules, tokenGroupRules, wholeBatches } from '../training_rules.js';

const policy = section(
  'The vision-language model.',
  z.strictObject({
    ...seeingFields,
    tokenizer: optionalModel(
      "Tokenizer and chat template: a local path, {hub, revision} or {run, config}; null means policy.model's own, or with policy.init the words of the tiny world.",
      'for the own one',
    ),
    assistant_prefill: result(
      'Text that every answer is made to begin with; rewards read it as part of the answer.',
      z.string().default(''),
    ),
  }),
);

const prompt = section(
  'How a question becomes what the policy is asked.',
  z
    .strictObject({
      system: result(
        'A system message that is put first where the conversation has none; null for none.',
        z.string().min(1).nullable().default(null),
      ),
      chat: result(
        "Write prompts by the model's chat template; false gives the model the bare words.",
        z.boolean().default(true),
      ),
      variables: result('Further names for the chat template.', z.record(z.string(), z.json()).default({})),
    })
    .prefault({}),
);

/** Labels alone teach a supervised run: what it samples, and what scores that, is only looked at. */
const supervised = (read: ReadSettings): boolean => read('algorithm.type') === 'sft';

const schema = z.strictObject({
  ...trainedFields,
  ...taskField('video_actions'),
  algorithm: wordsAlgorithm,
  rollout: idleWhere(supervised, rollout),
  policy,
  prompt,
  data: questionData,
  reward: idleWhere(supervised, wordsReward),
});
export type VideoActionsSettings = z.output<typeof schema>;

export const videoActions: TrainedRecipe<VideoActionsSettings> = {
  name: 'video_actions',
  trainer: 'this program',
  schema,
  rules: [
    ...tokenGroupRules,
    wholeBatches,
    ...sharedRules,
    ...policyRules,
    ...rewardRules,
    noImages,
    turnsNeedChat,
    ownWords,
  ],
  models: ['policy.tokenizer', 'policy.model'],
  tokenizers: ['policy.tokenizer'],
  engines: ['policy.engine'],
  reward: (settings) => settings.reward,
  ...seeingNeeds,
  tinyData: ({ data: { dir, tiny } }) => (tiny === null ? null : join(dir, tiny.folder)),
  needs,
  missing: ({ policy }) =>
    policy.model === null && policy.init === null
      ? [
          'policy.model is null: set it to a local path, {hub, revision} or {run, config}, or set policy.init to start from random weights',
        ]
      : [],
};

function needs({ data, policy, prompt }: VideoActionsSettings): Need[] {
  const folderOf = (reference: ModelReference | null): string | null =>
    typeof reference === 'string' ? reference : null;
  const model = folderOf(policy.model);
  const words = folderOf(policy.tokenizer ?? policy.model);
  const { lora, model_context_size: contextSize } = policy;
  return [
    { kind: 'ffmpeg' },
    ...[...data.train, ...data.validation].map(({ path, media }): Need => ({
      kind: 'questions',
      path,
      media,
      frames: data.frames,
    })),
    ...(model === null ? [] : [{ kind: 'decoder', folder: model, lora, contextSize, sees: policy.train } as const]),
    ...(words === null ? [] : [{ kind: 'tokenizer', folder: words, chat: prompt.chat, model } as const]),
  ];
}

/** A system message and a template's own names have no place in bare words. */
function turnsNeedChat(read: Reader): Problem[] {
  if (read('prompt.chat') !== false) return [];
  const isSet = (value: unknown): boolean =>
    value !== undefined && value !== null && Object.keys(Object(value) as object).length > 0;
  return ['system', 'variables'].flatMap((field) => {
    if (!isSet(read(`prompt.${field}`))) return [];
    return problem(`prompt.${field}`, 'found with prompt.chat false; allowed: with prompt.chat true, or left out');
  });
}

/** A model from random weights writes in somebody's tokens. */
function ownWords(read: Reader): Problem[] {
  if (read('policy.init') === null || read('policy.tokenizer') !== null || read('data.tiny') !== null) return [];
  return problem(
    'policy.tokenizer',
    'found null with policy.init; allowed: the model whose tokenizer is used, since only the tiny world (data.tiny) brings its own words',
  );
}
