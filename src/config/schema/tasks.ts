/** The tasks: which sections each one has. A task is one entry of `settingsOfTask`. */
import { z } from 'zod';
import { algorithm, tokenizerAlgorithm } from '../../schema/algorithm.js';
import { data, imageData } from '../../schema/data.js';
import { count, operation, positiveInteger, result, section } from '../../schema/mark.js';
import { decoderInit, engine, imageTokenizerInit, modelReference, runNamePattern } from '../../schema/model.js';
import { externalLaunch, launch } from '../../schema/launch.js';
import { reward } from '../../rewards/schema/reward.js';
import { track } from '../../schema/track.js';
import { checkpoint, optimizer, rollout, validation } from '../../schema/training.js';

const common = {
  run_name: operation(
    'Names the run and its folder: letters, digits, "._-", at most 96 characters.',
    z
      .string()
      .regex(runNamePattern, { error: 'a name of letters, digits, "._-", at most 96 characters, never a path' }),
  ),
  seed: result('Seed of everything random.', count.default(42)),
  num_iterations: result(
    'Iterations to train (for SFT: optimizer steps). May grow at resume, unless the learning rate falls until the last of them.',
    positiveInteger,
    { mayGrow: true },
  ),
  base_exp_dir: operation('The folder that run folders lie in.', z.string().min(1).default('runs')),
  track,
  launch,
};

/** What every training by this program has. */
const trained = { ...common, optimizer, validation, checkpoint };

const policy = section(
  'The token policy.',
  z.strictObject({
    model: result(
      'The start: a local path, {hub, revision} or {run, config}; null trains policy.init.',
      modelReference.nullable().default(null),
      {
        allowed: 'a local path, {hub, revision}, {run, config}, or null with policy.init',
      },
    ),
    init: decoderInit.nullable().default(null).meta({ description: 'The architecture where policy.model is null.' }),
    tokenizer: result(
      'Text tokenizer and vocabulary: a local path, {hub, revision} or {run, config}.',
      modelReference,
      {
        allowed: 'a local path, {hub, revision} or {run, config}',
      },
    ),
    model_context_size: result('Longest sequence of prompt and answer, in tokens.', positiveInteger.default(4096)),
    assistant_prefill: result(
      'Text that every answer is made to begin with; one that opens a thinking block makes the policy think before it edits.',
      z.string().default(''),
    ),
    emu3_use_logit_processor: result(
      'Sample only tokens that can follow in an image block.',
      z.boolean().default(true),
    ),
    image_header: result(
      "Who writes height*width of an answer's image: 'sampled', the policy, which may write any text before the image token (EARL's processor), or 'forced'. Without meaning without the processor, but that a sampled header is not read: the rows tell the image's size.",
      z.enum(['sampled', 'forced']).default('sampled'),
      { absent: 'forced', unhashed: 'forced' },
    ),
    end_after_image: result(
      "Force the end of an answer after its image, as EARL's processor does; else it ends where the policy ends it.",
      z.boolean().default(true),
      { absent: false, unhashed: false },
    ),
    chat_words: result(
      "Prompts say USER: before the source image and ASSISTANT: after the instruction. EARL's say neither.",
      z.boolean().default(false),
      { absent: true, unhashed: true },
    ),
    separate_language_and_vision_vocabs: result(
      'Take log-probabilities over the language or the vision part of the vocabulary, whichever the token belongs to.',
      z.boolean().default(true),
    ),
    engine,
  }),
);

const environment = section(
  'The vision-token decoder.',
  z.strictObject({
    model: result('The image tokenizer: a local path, {hub, revision} or {run, config}.', modelReference, {
      allowed: 'a local path, {hub, revision} or {run, config}',
    }),
    engine,
  }),
);

const tokenizerEnvironment = section(
  'The image tokenizer that is trained.',
  z.strictObject({ init: imageTokenizerInit, engine }),
);

const imageEditTokens = z.strictObject({
  ...trained,
  task: result('The task.', z.literal('image_edit_tokens')),
  algorithm,
  rollout,
  policy,
  data,
  environment,
  reward,
});

const imageTokenizer = z.strictObject({
  ...trained,
  task: result('The task.', z.literal('image_tokenizer')),
  algorithm: tokenizerAlgorithm,
  data: imageData,
  environment: tokenizerEnvironment,
});

const external = z.strictObject({
  ...common,
  launch: externalLaunch,
  task: result('The task.', z.literal('external')),
  parameters: result(
    "The trainer's own settings, whatever they are; it finds them in the resolved config.",
    z.record(z.string(), z.json()).default({}),
  ),
});

export const settingsOfTask = {
  image_edit_tokens: imageEditTokens,
  image_tokenizer: imageTokenizer,
  external,
} as const;

export type TaskName = keyof typeof settingsOfTask;
export const taskNames = Object.keys(settingsOfTask) as TaskName[];

/** An autoregressive token policy that edits images, trained by SFT or GRPO. */
export type ImageEditSettings = z.output<typeof imageEditTokens>;
/** A VQ image tokenizer trained on pixels. */
export type ImageTokenizerSettings = z.output<typeof imageTokenizer>;
/** Whatever the program in `launch.command` trains. */
export type ExternalSettings = z.output<typeof external>;
export type PolicySettings = z.output<typeof policy>;
export type EnvironmentSettings = z.output<typeof environment>;
