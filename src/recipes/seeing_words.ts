/** Settings that recipes share whose policy sees and answers in words. */
import { z } from 'zod';
import type { picturedData } from '../schema/seen_data.js';
import { result, section } from '../schema/mark.js';
import { type ModelReference, optionalModel } from '../schema/model.js';
import { exampleConversation } from './example_conversation.js';
import type { Need } from './recipe.js';
import { problem, type Problem, type Reader } from './rules.js';
import { seeingFields, type SeeingSettings } from './token_policy.js';

/** The policy. */
export const seeingPolicy = section(
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

/** How a sample becomes what it is asked. */
export const seeingPrompt = section(
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

/** A system message and a template's own names have no place in bare words. */
export function turnsNeedChat(read: Reader): Problem[] {
  if (read('prompt.chat') !== false) return [];
  const isSet = (value: unknown): boolean =>
    value !== undefined && value !== null && Object.keys(Object(value) as object).length > 0;
  return ['system', 'variables'].flatMap((field) => {
    if (!isSet(read(`prompt.${field}`))) return [];
    return problem(`prompt.${field}`, 'found with prompt.chat false; allowed: with prompt.chat true, or left out');
  });
}

/** A model from random weights writes in somebody's tokens. */
export function ownWords(read: Reader): Problem[] {
  if (read('policy.init') === null || read('policy.tokenizer') !== null || read('data.tiny') !== null) return [];
  return problem(
    'policy.tokenizer',
    'found null with policy.init; allowed: the model whose tokenizer is used, since only the tiny world (data.tiny) brings its own words',
  );
}

/** What is left open of a policy that neither starts from a model nor from random weights. */
export function startMissing({
  policy,
}: {
  readonly policy: { readonly model: unknown; readonly init: unknown };
}): string[] {
  if (policy.model !== null || policy.init !== null) return [];
  return [
    'policy.model is null: set it to a local path, {hub, revision} or {run, config}, or set policy.init to start from random weights',
  ];
}

/** The folder that a reference names; null for one that is not known yet. */
export const folderOf = (reference: ModelReference | null): string | null =>
  typeof reference === 'string' ? reference : null;

/** What a policy that sees and answers in words has to have. */
export function seeingPolicyNeeds({
  policy,
  prompt,
}: {
  readonly policy: SeeingSettings & { readonly tokenizer: ModelReference | null };
  readonly prompt: z.output<typeof seeingPrompt>;
}): Need[] {
  const model = folderOf(policy.model);
  const words = folderOf(policy.tokenizer ?? policy.model);
  const { lora, model_context_size: contextSize } = policy;
  const conversation = exampleConversation(prompt, 'words and pictures');
  return [
    ...(model === null ? [] : [{ kind: 'decoder', folder: model, lora, contextSize, sees: policy.train } as const]),
    ...(words === null ? [] : [{ kind: 'tokenizer', folder: words, conversation, model } as const]),
  ];
}

/** The datasets of a recipe that learns from edits of pictures. */
export function picturedNeeds({ data }: { readonly data: z.output<typeof picturedData> }): Need[] {
  const { source, instruction } = data.columns;
  return [...data.train, ...data.validation].map(({ path }) => ({
    kind: 'rows',
    path,
    columns: [source, instruction],
  }));
}
