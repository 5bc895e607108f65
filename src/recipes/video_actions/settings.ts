/** The recipe `video_actions`: a vision-language model answers questions about videos in words, trained by GRPO or by SFT. */
import { join } from 'node:path';
import { z } from 'zod';
import { measuredReward, wordsReward } from '../../rewards/schema/reward.js';
import { measured } from '../../rewards/score/settings.js';
import { wordsAlgorithm } from '../../schema/algorithm.js';
import { questionData } from '../../schema/seen_data.js';
import { idleWhere } from '../../schema/mark.js';
import { taskField, trainedFields } from '../../schema/run.js';
import { rollout, validation } from '../../schema/training.js';
import { policyRules } from '../policy_rules.js';
import type { Need, TrainedRecipe } from '../recipe.js';
import { noImages, rewardRules } from '../reward_rules.js';
import {
  ownWords,
  seeingPolicy,
  seeingPolicyNeeds,
  seeingPrompt,
  startMissing,
  turnsNeedChat,
} from '../seeing_words.js';
import { seeingNeeds } from '../token_policy.js';
import { sharedRules, tokenGroupRules, wholeBatches, supervised } from '../training_rules.js';

const schema = z.strictObject({
  ...trainedFields,
  ...taskField('video_actions'),
  validation: measured(validation),
  algorithm: wordsAlgorithm,
  rollout: idleWhere(supervised, rollout),
  policy: seeingPolicy,
  prompt: seeingPrompt,
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
  reward: measuredReward,
  ...seeingNeeds,
  tinyData: ({ data: { dir, tiny } }) => (tiny === null ? null : join(dir, tiny.folder)),
  needs,
  missing: startMissing,
};

function needs({ data, policy, prompt }: VideoActionsSettings): Need[] {
  return [
    { kind: 'ffmpeg' },
    ...[...data.train, ...data.validation].map(({ path, media }): Need => ({
      kind: 'questions',
      path,
      media,
      frames: data.frames,
    })),
    ...seeingPolicyNeeds({ policy, prompt }),
  ];
}
