/**
 * The recipe `text_answers`: a language model answers prompts in words, trained by SFT or by GRPO with any reward that
 * reads words.
 */
import { z } from 'zod';
import { wordsReward } from '../../rewards/schema/reward.js';
import { withMeasure } from '../../rewards/score/settings.js';
import { wordsAlgorithm } from '../../config/schema/algorithm.js';
import { rowData } from '../../config/schema/data.js';
import { idleWhere } from '../../core/schema/mark.js';
import { taskField, trainedFields } from '../../config/schema/run.js';
import { textPolicyWith, textPrompt } from '../../config/schema/token_policy.js';
import { rollout, validation } from '../../config/schema/training.js';
import { preset, type Part } from '../recipe.js';
import { noImages, rewardRules, thoughtsOnce } from '../shared/rules/reward.js';
import { problem, type PartialSettings, type Problem } from '../../config/schema/rules.js';
import { tokenGroupRules, sharedRules, wholeBatches, isSupervised } from '../shared/rules/training.js';
import { ownWords, textPart, turnsNeedChat } from '../shared/words/settings.js';

const schema = z.strictObject({
  ...trainedFields,
  ...taskField('text_answers'),
  validation: withMeasure(validation),
  algorithm: wordsAlgorithm,
  rollout: idleWhere(isSupervised, rollout),
  policy: textPolicyWith(null),
  prompt: textPrompt,
  data: rowData,
  reward: idleWhere(isSupervised, wordsReward),
});
export type TextAnswersSettings = z.output<typeof schema>;
/** Settings of tasks with rows of words, for any recipe. */
export type TextSettings = Omit<TextAnswersSettings, 'task'>;

/** Parts of every recipe whose policy answers rows of words in words, with any reward. */
export const textParts: readonly Part<TextSettings & { task: string }>[] = [
  { rules: [...tokenGroupRules, wholeBatches, ...sharedRules] },
  textPart,
  { rules: [...rewardRules, thoughtsOnce, turnsNeedChat, labels, ownWords] },
];

export const textAnswers = preset<TextAnswersSettings>({
  name: 'text_answers',
  schema,
  pipeline: 'text-generation',
  usedAt: { key: 'policy.model', of: 'text_answers' },
  parts: [...textParts, { rules: [noImages] }],
});

/** A placeholder for a column in a template. */
export const PLACEHOLDER = /\{([A-Za-z_][\w.-]*)\}/g;

/** The columns that prompts need, and the column of the label if there is one. */
export function columnsOf({ data: { columns }, prompt }: TextSettings): string[] {
  const promptColumns =
    prompt.template === null ? [columns.prompt] : [...prompt.template.matchAll(PLACEHOLDER)].map(([, name]) => name);
  return [...promptColumns, ...(columns.expected === null ? [] : [columns.expected])];
}

/** Supervised training needs labeled answers. Opening the datasets finds rows without one. */
function labels({ algorithm, data }: PartialSettings<TextSettings>): Problem[] {
  if (algorithm?.type !== 'sft' || data?.columns?.expected !== null) return [];
  return problem(
    'data.columns.expected',
    'found null with supervised training; allowed: the column of the labeled answer, or of a conversation that ends with it',
  );
}
