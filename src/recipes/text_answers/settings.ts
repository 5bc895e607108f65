/** The recipe `text_answers`: a language model answers prompts in words, trained by GRPO on any reward that reads words, or by SFT. */
import { join } from 'node:path';
import { z } from 'zod';
import { measuredReward, wordsReward } from '../../rewards/schema/reward.js';
import { measured } from '../../rewards/score/settings.js';
import { wordsAlgorithm } from '../../schema/algorithm.js';
import { rowData } from '../../schema/data.js';
import { idleWhere, result, section } from '../../schema/mark.js';
import { type ModelReference, optionalModel } from '../../schema/model.js';
import { taskField, trainedFields } from '../../schema/run.js';
import { thinkingTags, type ThinkingTags } from '../../schema/thinking.js';
import { rollout, validation } from '../../schema/training.js';
import { policyRules } from '../policy_rules.js';
import { exampleConversation } from '../example_conversation.js';
import { sourcesOf, type Need, type TrainedRecipe } from '../recipe.js';
import { noImages, rewardRules, thoughtsOnce } from '../reward_rules.js';
import { problem, type Problem, type Reader, type Rule } from '../rules.js';
import { decoderFields, decoderNeeds } from '../token_policy.js';
import { tokenGroupRules, sharedRules, wholeBatches, supervised } from '../training_rules.js';

const words = z.string().min(1);

/** That of a recipe whose policy answers in words; its thoughts stand between `thinking` where a config says nothing else. */
export const textPolicyWith = (thinking: ThinkingTags) =>
  section(
    'The language model.',
    z.strictObject({
      ...decoderFields,
      tokenizer: optionalModel(
        "Tokenizer and chat template: a local path, {hub, revision} or {run, config}; null means policy.model's own, or with policy.init the words of the tiny world.",
        'for the own one',
      ),
      assistant_prefill: result(
        'Text that every answer is made to begin with; rewards read it as part of the answer.',
        z.string().default(''),
      ),
      thinking: result(
        'The tags around what the policy thinks before it answers, {open, close}: rewards then read what stands after the last closing tag, nothing where the answer or its prompt opens one that it never closes, and all where there is none. null: rewards read all that it writes.',
        thinkingTags.default(thinking),
        { allowed: "{open: '<think>', close: '</think>'}, or null" },
      ),
    }),
  );
export const textPolicy = textPolicyWith(null);

/** How rows become prompts. */
export const textPrompt = section(
  'How a row of the dataset becomes what the policy is asked.',
  z
    .strictObject({
      template: result(
        "The user's words, in which {column} stands for a column of the row; null takes the column data.columns.prompt as it is.",
        words.nullable().default(null),
      ),
      system: result('A system message that is put first; null for none.', words.nullable().default(null)),
      examples: result(
        'Earlier turns that show how to answer: a list of {prompt, answer}.',
        z.array(z.strictObject({ prompt: words, answer: words })).default([]),
      ),
      chat: result(
        "Write prompts by the model's chat template; false gives the model the bare words.",
        z.boolean().default(true),
      ),
      variables: result(
        'Further names for the chat template, such as enable_thinking.',
        z.record(z.string(), z.json()).default({}),
      ),
    })
    .prefault({}),
);

const schema = z.strictObject({
  ...trainedFields,
  ...taskField('text_answers'),
  validation: measured(validation),
  algorithm: wordsAlgorithm,
  rollout: idleWhere(supervised, rollout),
  policy: textPolicy,
  prompt: textPrompt,
  data: rowData,
  reward: idleWhere(supervised, wordsReward),
});
export type TextAnswersSettings = z.output<typeof schema>;
/** What a task of rows of words follows, whichever recipe it is of. */
export type TextSettings = Omit<TextAnswersSettings, 'task'>;

/** Of every recipe whose policy answers in words, whatever scores the answers. */
export const textRules: readonly Rule[] = [
  ...tokenGroupRules,
  wholeBatches,
  ...sharedRules,
  ...policyRules,
  ...rewardRules,
  thoughtsOnce,
  turnsNeedChat,
  labels,
  ownWords,
];

export const textAnswers: TrainedRecipe<TextAnswersSettings> = {
  name: 'text_answers',
  trainer: 'this program',
  schema,
  rules: [...textRules, noImages],
  models: ['policy.tokenizer', 'policy.model'],
  tokenizers: ['policy.tokenizer'],
  engines: ['policy.engine'],
  reward: measuredReward,
  ...decoderNeeds,
  tinyData: ({ data: { dir, tiny } }) => (tiny === null ? null : join(dir, tiny.folder)),
  needs: textNeeds,
  missing: textMissing,
};

/** A column's place in a template. */
export const PLACEHOLDER = /\{([A-Za-z_][\w.-]*)\}/g;

/** What a policy that answers in words has to have. */
export function textNeeds({ data, policy, prompt }: Pick<TextAnswersSettings, 'data' | 'policy' | 'prompt'>): Need[] {
  const asked =
    prompt.template === null
      ? [data.columns.prompt]
      : [...prompt.template.matchAll(PLACEHOLDER)].map(([, name]) => name);
  const columns = [...asked, ...(data.columns.expected === null ? [] : [data.columns.expected])];
  const folderOf = (reference: ModelReference | null): string | null =>
    typeof reference === 'string' ? reference : null;
  const model = folderOf(policy.model);
  const words = folderOf(policy.tokenizer ?? policy.model);
  const { lora, model_context_size: contextSize } = policy;
  const conversation = exampleConversation(prompt, 'words');
  return [
    ...sourcesOf(data).map(({ path }): Need => ({ kind: 'rows', path, columns })),
    ...(model === null ? [] : [{ kind: 'decoder', folder: model, lora, contextSize } as const]),
    ...(words === null ? [] : [{ kind: 'tokenizer', folder: words, conversation, model } as const]),
  ];
}

/** What is left open of a policy that answers in words. */
export function textMissing({ policy }: Pick<TextAnswersSettings, 'policy'>): string[] {
  if (policy.model !== null || policy.init !== null) return [];
  return [
    'policy.model is null: set it to a local path, {hub, revision} or {run, config}, or set policy.init to start from random weights',
  ];
}

/** A system message, examples and a template's own names have no place in bare words. */
function turnsNeedChat(read: Reader): Problem[] {
  if (read('prompt.chat') !== false) return [];
  const isSet = (value: unknown): boolean =>
    value !== undefined && value !== null && Object.keys(Object(value) as object).length > 0;
  return ['system', 'examples', 'variables'].flatMap((field) => {
    if (!isSet(read(`prompt.${field}`))) return [];
    return problem(`prompt.${field}`, 'found with prompt.chat false; allowed: with prompt.chat true, or left out');
  });
}

/** Supervised training needs labelled answers. Rows that lack one are found when the datasets are opened. */
function labels(read: Reader): Problem[] {
  if (read('algorithm.type') !== 'sft' || read('data.columns.expected') !== null) return [];
  return problem(
    'data.columns.expected',
    'found null with supervised training; allowed: the column that holds the labelled answer, or the conversation that ends with it',
  );
}

/** A model from random weights writes in somebody's tokens. */
function ownWords(read: Reader): Problem[] {
  if (read('policy.init') === null || read('policy.tokenizer') !== null || read('data.tiny') !== null) return [];
  return problem(
    'policy.tokenizer',
    'found null with policy.init; allowed: the model whose tokenizer is used, since only the tiny world (data.tiny) brings its own words',
  );
}
