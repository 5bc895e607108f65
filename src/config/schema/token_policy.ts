/** A policy that is a token decoder, and its prompts: the sections that recipes share. */
import { z } from 'zod';
import { positiveInteger, result, section } from '../../core/schema/mark.js';
import { decoderEngine, decoderInit, lora, optionalModel, trainedParts, visionInit } from './model.js';
import { trainerAnywhere, trainerHere } from './trainer.js';

/** The decoder: where it starts, and which parts are trained. */
export const decoderFields = {
  model: optionalModel(
    'The start: a local path, {hub, revision} or {run, config}; null trains policy.init.',
    'with policy.init',
  ),
  init: decoderInit.nullable().default(null).meta({ description: 'The architecture where policy.model is null.' }),
  lora: lora
    .nullable()
    .default(null)
    .meta({ ...lora.meta() }),
  model_context_size: result('Longest sequence of prompt and answer, in tokens.', positiveInteger.default(4096)),
  trainer: trainerHere,
  engine: decoderEngine,
};

const limits = (what: string, least: number, most: number) =>
  z
    .strictObject({
      min_pixels: result(`Least pixels of ${what} after it was resized.`, positiveInteger.default(least)),
      max_pixels: result(`Most pixels of ${what} after it was resized.`, positiveInteger.default(most)),
    })
    .prefault({});

/** A decoder with vision: where it starts, which parts are trained, and how large pictures are shown. */
export const seeingFields = {
  ...decoderFields,
  init: decoderInit
    .extend({ vision: visionInit })
    .nullable()
    .default(null)
    .meta({ description: 'The architecture where policy.model is null.' }),
  train: trainedParts,
  pixels: section(
    'How large pictures are shown.',
    z
      .strictObject({
        image: limits('an image', 28 * 28 * 16, 28 * 28 * 576),
        video: limits('a frame of a video', 28 * 28 * 4, 28 * 28 * 32),
      })
      .prefault({}),
  ),
};

export type SeeingSettings = z.output<z.ZodObject<typeof seeingFields>>;

export type DecoderSettings = z.output<z.ZodObject<typeof decoderFields>>;

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
export const seeingPolicy = section(
  'The vision-language model.',
  z.strictObject({ ...seeingFields, ...wordsFields, trainer: trainerAnywhere }),
);

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

export type TextPolicySettings = z.output<ReturnType<typeof textPolicyWith>>;

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
export type PromptSettings = z.output<typeof textPrompt> | z.output<typeof seeingPrompt>;

/** The tags around it; null if thoughts are not distinguished. */
export const thinkingTags = z.strictObject({ open: words, close: words }).nullable();
export type ThinkingTags = z.output<typeof thinkingTags>;
