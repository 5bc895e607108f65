/** The recipe `video_actions`: a vision-language model answers questions about videos in words, trained by GRPO or by SFT. */
import { z } from 'zod';
import { wordsReward } from '../../rewards/schema/reward.js';
import { withMeasure } from '../../rewards/score/settings.js';
import { wordsAlgorithm } from '../../config/schema/algorithm.js';
import { questionData } from '../../config/schema/seen_data.js';
import { idleWhere } from '../../core/schema/mark.js';
import { taskField, trainedFields } from '../../config/schema/run.js';
import { seeingPolicy, seeingPrompt } from '../../config/schema/token_policy.js';
import { rollout, validation } from '../../config/schema/training.js';
import { preset } from '../recipe.js';
import { noImages, rewardRules } from '../shared/rules/reward.js';
import { requireValues, type PartialSettings, type Problem } from '../../config/schema/rules.js';
import { servedTrainerRules, TRAINER } from '../shared/tokens/rules.js';
import { sharedRules, tokenGroupRules, wholeBatches, isSupervised } from '../shared/rules/training.js';
import { ownWords, seeingWordsPart, turnsNeedChat } from '../shared/words/settings.js';

const schema = z.strictObject({
  ...trainedFields,
  ...taskField('video_actions'),
  validation: withMeasure(validation),
  algorithm: wordsAlgorithm,
  rollout: idleWhere(isSupervised, rollout),
  policy: seeingPolicy,
  prompt: seeingPrompt,
  data: questionData,
  reward: idleWhere(isSupervised, wordsReward),
});
export type VideoActionsSettings = z.output<typeof schema>;

/** Limits of training servers. */
function servedImages({ data, policy }: PartialSettings<VideoActionsSettings>): readonly Problem[] {
  if (policy?.trainer?.type !== 'tinker') return [];
  const imagesAlone = 'whose servers take each frame as an image of its own, and no clip with the times of its frames';
  return requireValues({ data, policy }, TRAINER, [
    ['data.frames.as', 'images', imagesAlone],
    ['policy.train.mm_vision', false, 'whose server decides which layers have an adapter'],
  ]);
}

export const videoActions = preset<VideoActionsSettings>({
  name: 'video_actions',
  schema,
  pipeline: 'video-text-to-text',
  usedAt: { key: 'policy.model', of: 'video_actions' },
  parts: [
    { rules: [...tokenGroupRules, wholeBatches, ...sharedRules] },
    seeingWordsPart,
    { rules: [...servedTrainerRules, servedImages, ...rewardRules, noImages, turnsNeedChat, ownWords] },
  ],
});
