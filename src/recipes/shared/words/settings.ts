/** What recipes share whose policy answers in words: its rules and needs. */
import type { z } from 'zod';
import type { ModelReference } from '../../../config/schema/model.js';
import type { TrainedSettings } from '../../../config/schema/run.js';
import type { picturedData } from '../../../config/schema/seen_data.js';
import type { PromptSettings, SeeingSettings, TextPolicySettings } from '../../../config/schema/token_policy.js';
import type { TrainerSettings } from '../../../config/schema/trainer.js';
import { startMissing, type ExampleConversation, folderOf, type Part, type Need } from '../../recipe.js';
import { problem, type PartialSettings, type Problem } from '../../../config/schema/rules.js';
import { servedTrainerRules } from '../tokens/rules.js';
import { decoderPart, seeingPart, type SeeingRecipeSettings, type TokenRecipeSettings } from '../tokens/settings.js';
import type { MessageContent } from '../../../models/chat/template.js';

/** A system message, examples and a template's own names cannot be used in bare words. */
export function turnsNeedChat({ prompt }: PartialSettings<{ prompt: PromptSettings }>): readonly Problem[] {
  if (prompt?.chat !== false) return [];
  return (['system', 'examples', 'variables'] as const).flatMap((field) => {
    const found = prompt[field] ?? '';
    if (Object.keys(Object(found) as object).length === 0) return [];
    return problem(`prompt.${field}`, 'found with prompt.chat false; allowed: with prompt.chat true, or left out');
  });
}

interface OwnWordsSettings extends Pick<TrainedSettings, 'data'> {
  readonly policy: Pick<TextPolicySettings, 'init' | 'tokenizer'>;
}

/** A model with random weights needs a vocabulary from somewhere. */
export function ownWords({ policy, data }: PartialSettings<OwnWordsSettings>): readonly Problem[] {
  if (policy?.init === null || policy?.tokenizer !== null || data?.tiny !== null) return [];
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
    trainer,
  }: Pick<SeeingSettings, 'model' | 'lora' | 'model_context_size'> & {
    readonly tokenizer: ModelReference | null;
    readonly train?: SeeingSettings['train'];
    readonly trainer?: TrainerSettings;
  },
  prompt: Parameters<typeof exampleConversation>[0],
): Need[] {
  const [model, reader] = [folderOf(start), folderOf(tokenizer ?? start)];
  const conversation = exampleConversation(prompt, train === undefined ? 'words' : 'words and pictures');
  const sees = train === undefined ? {} : { sees: train };
  return [
    ...(model === null ? [] : [{ kind: 'decoder', folder: model, lora, contextSize, ...sees } as const]),
    ...(reader === null ? [] : [{ kind: 'tokenizer', folder: reader, conversation, model } as const]),
    // A server that trains it has the model: how it sees is read where its tokenizer is.
    ...(train === undefined || trainer?.type !== 'tinker' || reader === null
      ? []
      : [{ kind: 'sight', folder: reader } as const]),
  ];
}

type InWords<S extends TokenRecipeSettings> = S & {
  readonly policy: { readonly tokenizer: ModelReference | null };
  readonly prompt: PromptSettings;
};

type TextRecipeSettings = InWords<TokenRecipeSettings> & { readonly policy: TextPolicySettings };

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
  missing: (settings) => (settings.policy.trainer.type === 'onnx' ? startMissing(settings) : []),
};

/** The columns that every row of a dataset of edits has to have. */
export function picturedColumns({ columns }: Pick<z.output<typeof picturedData>, 'columns'>): string[] {
  return [columns.source, columns.instruction];
}

/** The settings around every question. */
interface Prompt {
  readonly chat: boolean;
  readonly system: string | null;
  readonly examples?: readonly { readonly prompt: string; readonly answer: string }[];
  readonly variables: Readonly<Record<string, unknown>>;
}

const QUESTION = 'a question';

/** Only words, or words after a picture. */
const questions = {
  words: QUESTION,
  'words and pictures': [{ type: 'image' }, { type: 'text', text: QUESTION }],
} as const satisfies Readonly<Record<string, MessageContent>>;

/** Null if the prompts are bare words. */
export function exampleConversation(
  { chat, system, examples = [], variables }: Prompt,
  asks: keyof typeof questions,
): ExampleConversation | null {
  if (!chat) return null;
  const messages = [
    ...(system === null ? [] : [{ role: 'system', content: system }]),
    ...examples.flatMap(({ prompt, answer }) => [
      { role: 'user', content: prompt },
      { role: 'assistant', content: answer },
    ]),
    { role: 'user', content: questions[asks] },
  ];
  return { messages, variables };
}
