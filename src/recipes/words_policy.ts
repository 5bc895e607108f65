/** What recipes share whose policy answers in words: the sections for the policy and the prompt, with their rules and needs. */
import { z } from 'zod';
import { result, section } from '../schema/mark.js';
import { optionalModel, type ModelReference } from '../schema/model.js';
import type { picturedData } from '../schema/seen_data.js';
import type { ThinkingTags } from '../schema/thinking.js';
import { thinkingTags } from '../schema/thinking.js';
import { trainerAnywhere, type TrainerSettings } from '../schema/trainer.js';
import { exampleConversation } from './example_conversation.js';
import { startMissing, type Part } from './preset.js';
import { folderOf, type Need } from './recipe.js';
import { problem, type Problem, type Reader } from './rules.js';
import { servedTrainerRules } from './served_trainer.js';
import {
  decoderFields,
  decoderPart,
  seeingFields,
  seeingPart,
  type SeeingRecipeSettings,
  type SeeingSettings,
  type TokenRecipeSettings,
} from './token_policy.js';

const words = z.string().min(1);

/** In addition to the fields of a decoder. */
const wordsFields = {
  tokenizer: optionalModel(
    "Tokenizer and chat template: a local path, {hub, revision} or {run, config}; null means policy.model's own, or with policy.init the words of the tiny world.",
    'for the own one',
  ),
  assistant_prefill: result(
    'Text that every answer is made to begin with; rewards read it as part of the answer.',
    z.string().default(''),
  ),
};

/** A policy that sees and answers in words. */
export const seeingPolicy = section('The vision-language model.', z.strictObject({ ...seeingFields, ...wordsFields }));

/** A policy that answers in words; `thinking` is the default for the tags around its thoughts. */
export const textPolicyWith = (thinking: ThinkingTags) =>
  section(
    'The language model.',
    z.strictObject({
      ...decoderFields,
      ...wordsFields,
      trainer: trainerAnywhere,
      thinking: result(
        'The tags around what the policy thinks before it answers, {open, close}: rewards then read what stands after the last closing tag, nothing where the answer or its prompt opens one that it never closes, and all where there is none. null: rewards read all that it writes.',
        thinkingTags.default(thinking),
        { allowed: "{open: '<think>', close: '</think>'}, or null" },
      ),
    }),
  );

const chat = result(
  "Write prompts by the model's chat template; false gives the model the bare words.",
  z.boolean().default(true),
);
const variables = (such: string) =>
  result(`Further names for the chat template${such}.`, z.record(z.string(), z.json()).default({}));

/** How a sample with pictures becomes the policy's question. */
export const seeingPrompt = section(
  'How a question becomes what the policy is asked.',
  z
    .strictObject({
      system: result(
        'A system message that is put first where the conversation has none; null for none.',
        words.nullable().default(null),
      ),
      chat,
      variables: variables(''),
    })
    .prefault({}),
);

/** How a row of words becomes the policy's question. */
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
      chat,
      variables: variables(', such as enable_thinking'),
    })
    .prefault({}),
);

/** A system message, examples and a template's own names cannot be used in bare words. */
export function turnsNeedChat(read: Reader): Problem[] {
  if (read('prompt.chat') !== false) return [];
  const isSet = (value: unknown): boolean =>
    value !== undefined && value !== null && Object.keys(Object(value) as object).length > 0;
  return ['system', 'examples', 'variables'].flatMap((field) => {
    if (!isSet(read(`prompt.${field}`))) return [];
    return problem(`prompt.${field}`, 'found with prompt.chat false; allowed: with prompt.chat true, or left out');
  });
}

/** A model with random weights needs a vocabulary from somewhere. */
export function ownWords(read: Reader): Problem[] {
  if (read('policy.init') === null || read('policy.tokenizer') !== null || read('data.tiny') !== null) return [];
  return problem(
    'policy.tokenizer',
    'found null with policy.init; allowed: the model whose tokenizer is used, since only the tiny world (data.tiny) brings its own words',
  );
}

/** Needs of a model that reads words; it also has to see if the settings say which of its parts train. */
export function wordsNeeds(
  {
    model: start,
    tokenizer,
    lora,
    model_context_size: contextSize,
    train,
  }: Pick<SeeingSettings, 'model' | 'lora' | 'model_context_size'> & {
    readonly tokenizer: ModelReference | null;
    readonly train?: SeeingSettings['train'];
  },
  prompt: Parameters<typeof exampleConversation>[0],
): Need[] {
  const [model, reader] = [folderOf(start), folderOf(tokenizer ?? start)];
  const conversation = exampleConversation(prompt, train === undefined ? 'words' : 'words and pictures');
  const sees = train === undefined ? {} : { sees: train };
  return [
    ...(model === null ? [] : [{ kind: 'decoder', folder: model, lora, contextSize, ...sees } as const]),
    ...(reader === null ? [] : [{ kind: 'tokenizer', folder: reader, conversation, model } as const]),
  ];
}

type InWords<S extends TokenRecipeSettings> = S & {
  readonly policy: { readonly tokenizer: ModelReference | null };
  readonly prompt: Parameters<typeof exampleConversation>[0];
};

type TextRecipeSettings = InWords<TokenRecipeSettings> & { readonly policy: { readonly trainer: TrainerSettings } };

/** A policy that answers in words. A server that trains it has the model, too. */
export const textPart: Part<TextRecipeSettings> = {
  ...decoderPart,
  rules: [...decoderPart.rules, ...servedTrainerRules],
  needs: ({ policy, prompt }) => wordsNeeds(policy, prompt),
  missing: (settings) => (settings.policy.trainer.type === 'onnx' ? startMissing(settings) : []),
};

/** A policy that sees and answers in words. */
export const seeingWordsPart: Part<InWords<SeeingRecipeSettings>> = {
  ...seeingPart,
  needs: ({ policy, prompt }) => wordsNeeds(policy, prompt),
};

/** The columns that every row of a dataset of edits has to have. */
export function picturedColumns({ columns }: Pick<z.output<typeof picturedData>, 'columns'>): string[] {
  return [columns.source, columns.instruction];
}
