/** Token decoder policies and their prompts: the sections that recipes share. */
import { z } from 'zod';
import { positiveInteger, result, section } from '../../core/schema/mark.js';
import { decoderEngine, decoderInit, lora, optionalModel, trainedParts, visionInit } from './model.js';
import { trainerAnywhere, trainerHere } from './trainer.js';

/** The decoder: its start, and the parts that train. */
export const decoderFields = {
  model: optionalModel(
    'The model to start from: a local path, {hub, revision} or {run, config}. null trains policy.init.',
    'with policy.init',
  ),
  init: decoderInit.nullable().default(null).meta({ description: 'The architecture if policy.model is null.' }),
  lora: lora
    .nullable()
    .default(null)
    .meta({ ...lora.meta() }),
  model_context_size: result('Maximum tokens of prompt and answer together.', positiveInteger.default(4096)),
  trainer: trainerHere,
  engine: decoderEngine,
};

const limits = (what: string, least: number, most: number) =>
  z
    .strictObject({
      min_pixels: result(`Minimum pixels of ${what} after resizing.`, positiveInteger.default(least)),
      max_pixels: result(`Maximum pixels of ${what} after resizing.`, positiveInteger.default(most)),
    })
    .prefault({});

/** A decoder with vision: its start, the parts that train, and the size of images. */
export const seeingFields = {
  ...decoderFields,
  init: decoderInit
    .extend({ vision: visionInit })
    .nullable()
    .default(null)
    .meta({ description: 'The architecture if policy.model is null.' }),
  train: trainedParts,
  pixels: section(
    'The size of images.',
    z
      .strictObject({
        image: limits('an image', 28 * 28 * 16, 28 * 28 * 576),
        video: limits('a frame of a video', 28 * 28 * 4, 28 * 28 * 32),
      })
      .prefault({}),
  ),
};

export type VisionPolicySettings = z.output<z.ZodObject<typeof seeingFields>>;

export type DecoderSettings = z.output<z.ZodObject<typeof decoderFields>>;

const words = z.string().min(1);

/** In addition to the fields of a decoder. */
const wordsFields = {
  tokenizer: optionalModel(
    'Tokenizer and chat template: a local path, {hub, revision} or {run, config}. null means those of policy.model, or with policy.init the vocabulary of the tiny world.',
    'for those of the model',
  ),
  assistant_prefill: result(
    'Text that every answer is forced to start with. Rewards read it as part of the answer.',
    z.string().default(''),
  ),
};

/** A policy that reads images and answers with text. */
export const seeingPolicy = section(
  'The vision-language model.',
  z.strictObject({ ...seeingFields, ...wordsFields, trainer: trainerAnywhere }),
);

/** A policy that answers with text. `thinking`: the default tags around its thinking. */
export const textPolicyWith = (thinking: ThinkingTags) =>
  section(
    'The language model.',
    z.strictObject({
      ...decoderFields,
      ...wordsFields,
      trainer: trainerAnywhere,
      thinking: result(
        'The tags around thinking, {open, close}. Rewards read only the text after the last closing tag, nothing if a tag is never closed, and everything without tags. null means that rewards read everything.',
        thinkingTags.default(thinking),
        { allowed: "{open: '<think>', close: '</think>'}, or null" },
      ),
    }),
  );

export type TextPolicySettings = z.output<ReturnType<typeof textPolicyWith>>;

const chat = result(
  "Apply the model's chat template to prompts. false uses the plain text.",
  z.boolean().default(true),
);
const variables = (such: string) =>
  result(`Further variables for the chat template${such}.`, z.record(z.string(), z.json()).default({}));

/** The prompt of a sample with images. */
export const seeingPrompt = section(
  'How a question becomes a prompt.',
  z
    .strictObject({
      system: result(
        'A system message for conversations without one. null means none.',
        words.nullable().default(null),
      ),
      chat,
      variables: variables(''),
    })
    .prefault({}),
);

/** The prompt of a text row. */
export const textPrompt = section(
  'How a row of the dataset becomes a prompt.',
  z
    .strictObject({
      template: result(
        'The user message. {column} is replaced by that column of the row. null uses the column data.columns.prompt.',
        words.nullable().default(null),
      ),
      system: result('A system message. null means none.', words.nullable().default(null)),
      examples: result(
        'Few-shot examples: a list of {prompt, answer}.',
        z.array(z.strictObject({ prompt: words, answer: words })).default([]),
      ),
      chat,
      variables: variables(', such as enable_thinking'),
    })
    .prefault({}),
);
export type PromptSettings = z.output<typeof textPrompt> | z.output<typeof seeingPrompt>;

/** The tags around thinking. Null if thinking is not separated. */
export const thinkingTags = z.strictObject({ open: words, close: words }).nullable();
export type ThinkingTags = z.output<typeof thinkingTags>;
