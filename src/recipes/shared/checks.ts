/**
 * Checks of files that recipes need on this machine. They compute nothing, and pass for files that do not exist yet.
 */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import type { z } from 'zod';
import { withAdapter } from '../../compute/nets/decoder/config.js';
import type { TrainedParts } from '../../compute/nets/vision/config.js';
import type { StorageDtype } from '../../core/safetensors.js';
import type { lora, ModelReference } from '../../config/schema/model.js';
import type { TrainedSettings } from '../../config/schema/run.js';
import type { VisionPolicySettings } from '../../config/schema/token_policy.js';
import type { TrainerSettings } from '../../config/schema/trainer.js';
import { ConfigError, DataError, must } from '../../core/errors.js';
import { checkSamples } from '../../data/inpainting.js';
import { checkRows } from '../../data/rows.js';
import { wholeList } from '../../data/self_bench.js';
import { isTiny } from '../../data/tiny/build.js';
import { checkAdapters, describeModel } from '../../models/adapters/decoder.js';
import { lacksHubBase, rootOf } from '../../models/adapters/files.js';
import type { Message, MessageContent } from '../../models/chat/template.js';
import { TOKENIZER_FILE } from '../../models/files.js';
import { describeAutoencoder } from '../../models/networks/autoencoder.js';
import { checkDecoder, remarkOnHead } from '../../models/networks/decoder.js';
import { isPipeline, readPipeline } from '../../models/pipeline.js';
import { specialNames } from '../../models/tokenizer/open.js';
import { noTokenizer, openChatTemplate, parse, tokenCount, tokenizerJson } from '../../models/tokenizer/texts.js';
import { targetOf } from '../../rewards/terms/ocr/similarity.js';
import { StyleEncoder } from '../../train/environments/style_encoder.js';
import { checkFrozenFlow, requireDropout } from '../../train/policies/flow/load.js';
import { checkPipeline } from '../../train/policies/flow/pipeline.js';
import { requireTokens } from '../../train/policies/tokens/load.js';
import { sourcesOf, type Check } from '../recipe.js';
import { textEncoderIn } from './flow/parts.js';
import { openPromptImages } from './images/vision.js';
import type { ShapeOf } from './memory.js';

/** Creates checks. Equal arguments give equal checks. */
export function checkOf<A extends readonly unknown[]>(what: string, run: (...args: A) => void): (...args: A) => Check {
  return (...args) => ({ name: `${what} ${JSON.stringify(args)}`, run: () => run(...args) });
}

/** Checks each dataset, except for those of the tiny world, which the run makes itself. */
export function datasetChecks(
  { data }: Pick<TrainedSettings, 'data'>,
  checkAt: (path: string) => Check,
  sources: readonly { readonly path: string }[] = sourcesOf(data),
): Check[] {
  return sources.flatMap(({ path }) => (data !== undefined && isTiny({ data }, path) ? [] : [checkAt(path)]));
}

/** Checks rows with these columns. */
export const rowsCheck = checkOf('rows', checkRows);

/** Checks images with captions. */
export const captionChecks = (settings: Pick<TrainedSettings, 'data'>): Check[] =>
  datasetChecks(settings, (path) => rowsCheck(path, ['file_name', 'text']));

interface InpaintOptions {
  /** Whether a reward reads the text that is quoted in each prompt. */
  readonly quoted: boolean;
  /** Both sides of every image have to be multiples of this. */
  readonly side: number;
  /** The side of the squares that images are scaled to. Null keeps their size. */
  readonly resolution: number | null;
}

/** Checks a list of images to inpaint. */
export const inpaintCheck = checkOf('inpainting', (path: string, { quoted, side, resolution }: InpaintOptions) => {
  wholeList(path, quoted ? targetOf : undefined, (list) => checkSamples(list, side, resolution));
});

/** The frozen models around a flow transformer. */
type FlowParts = Partial<Record<'vae' | 'text_encoder' | 'image_encoder', ModelReference | null>>;

const partReaders: Readonly<Record<keyof FlowParts, (folder: string) => unknown>> = {
  vae: describeAutoencoder,
  text_encoder: textEncoderIn,
  image_encoder: (folder) => new StyleEncoder(folder),
};

const flowPartCheck = checkOf('flow part', (part: keyof FlowParts, folder: string) => {
  if (existsSync(folder)) partReaders[part](folder);
});

/** Checks the models around a flow transformer that are in folders. */
export function flowPartChecks(parts: FlowParts): Check[] {
  return Object.entries(parts).flatMap(([part, folder]) =>
    typeof folder === 'string' ? [flowPartCheck(part as keyof FlowParts, folder)] : [],
  );
}

const dropoutCheck = checkOf('guidance', (dropout: number, section: 'policy' | 'environment') =>
  requireDropout(dropout, section),
);

/**
 * Guidance needs a model that was also trained without text. Checks a model that a run makes here. An existing one is
 * checked when it is opened.
 */
export function guidanceChecks(
  section: 'policy' | 'environment',
  model: ModelReference | null,
  guidance: number | null,
  shapeOf: ShapeOf,
): Check[] {
  if (guidance === null || model === null || typeof model === 'string') return [];
  const shape = shapeOf(model);
  if (shape === null || !('kind' in shape) || shape.kind !== 'flow' || shape.conditionDropout === null) return [];
  return [dropoutCheck(shape.conditionDropout, section)];
}

/**
 * Checks a frozen flow model. `family` is the required model_type of a pipeline. A transformer's folder alone needs
 * none.
 */
const frozenFlowCheck = checkOf('frozen flow', (folder: string, guidance: number | null, family: string | null) => {
  if (!existsSync(folder)) return;
  if (family === null || !isPipeline(folder)) checkFrozenFlow(folder, guidance);
  else checkPipeline(readPipeline(folder), family, guidance);
});

/** Checks the environment's frozen flow model and the models around it. Empty if a server generates the images. */
export function frozenFlowChecks(
  environment:
    | {
        readonly type: 'model';
        readonly model: ModelReference;
        readonly model_type: string;
        readonly parts: FlowParts;
        readonly guidance_scale: number | null;
        readonly engine: { readonly dtype: StorageDtype };
      }
    | { readonly type: 'images_api' | 'images_api_text_prompt' | 'render_server' }
    | null,
  shapeOf: ShapeOf,
): Check[] {
  if (environment?.type !== 'model') return [];
  const { model, model_type, parts, guidance_scale: guidance } = environment;
  const family = 'text_encoder' in parts ? model_type : null;
  return [
    ...flowPartChecks(parts),
    ...(typeof model === 'string' ? [frozenFlowCheck(model, guidance, family)] : []),
    ...guidanceChecks('environment', model, guidance, shapeOf),
  ];
}

interface DecoderOptions {
  readonly lora: z.output<typeof lora> | null;
  /** Length of its longest sequence. */
  readonly contextSize: number;
  /** For a vision-language model: which of its parts train. */
  readonly vision?: TrainedParts;
}

/**
 * Checks a language model, with its vision encoder if `vision` is given. The check's remark is about files that
 * contradict each other.
 */
export function decoderCheck(folder: string, options: DecoderOptions): Check {
  return {
    ...checkOf('decoder', checkDecoderIn)(folder, options),
    remark: () => (isComplete(folder) ? remarkOnHead(rootOf(folder)) : null),
  };
}

function checkDecoderIn(folder: string, { lora, contextSize, vision }: DecoderOptions): void {
  if (!isComplete(folder)) return;
  const part = vision === undefined ? 'words' : 'words and images';
  const config = describeModel(folder, part);
  checkAdapters(folder, part);
  const positions = checkDecoder(rootOf(folder), part).contextSize;
  if (config.vision !== undefined) openPromptImages(folder, config.vision);
  if (lora !== null) withAdapter(config, lora, vision);
  if (positions === null || contextSize <= positions) return;
  throw new ConfigError(`policy.model_context_size is ${contextSize}, but the model has only ${positions} positions`, {
    where: folder,
    next: `Set policy.model_context_size to ${positions} or less.`,
  });
}

/**
 * Whether a model's folder is complete. Parts on the Hub are downloaded after the first checks, which then run again.
 */
export function isComplete(model: string): boolean {
  return existsSync(model) && !lacksHubBase(model);
}

/** A conversation with the form of the run's conversations. */
interface ExampleConversation {
  readonly messages: readonly Message[];
  readonly variables: Readonly<Record<string, unknown>>;
}

/**
 * Checks a tokenizer. Its chat template must accept the conversation, which is null if the template is not used.
 * `model` is the folder of the model that reads its tokens, or null if not known yet.
 */
export const tokenizerCheck = checkOf(
  'tokenizer',
  (folder: string, conversation: ExampleConversation | null, model: string | null) => {
    if (!existsSync(folder)) return;
    const json = tokenizerJson(folder);
    if (json === null) throw noTokenizer(folder);
    const parsed = parse(json, join(folder, TOKENIZER_FILE));
    if (conversation !== null) requireTemplate(folder, parsed, conversation);
    const count = tokenCount(parsed);
    if (count === null || model === null || !isComplete(model)) return;
    requireTokens({ size: count, secondPart: null }, describeModel(model).vocab_size, folder);
  },
);

/** Raises DataError unless a chat template accepts conversations like the run's. */
function requireTemplate(folder: string, tokenizer: unknown, { messages, variables }: ExampleConversation): void {
  const template = openChatTemplate(folder, { special: specialNames(folder, tokenizer) });
  if (template !== null) {
    template.renderNow(messages, { addGenerationPrompt: true, variables });
    return;
  }
  throw new DataError('the model has no chat template', {
    where: folder,
    next: 'Set prompt.chat to false for a base (non-chat) model, or add chat_template.jinja to its folder.',
  });
}

/** Checks the image processor of a model that a server trains. */
const imageInputCheck = checkOf('image input', (folder: string) => {
  if (!isComplete(folder)) return;
  const { vision } = describeModel(folder, 'words and images');
  openPromptImages(folder, must(vision, 'a vision encoder'));
});

/** Checks a model that reads text, and images if the settings name the parts that train. */
export function languageModelChecks(
  {
    model: start,
    tokenizer,
    lora,
    model_context_size: contextSize,
    train,
    trainer,
  }: Pick<VisionPolicySettings, 'model' | 'lora' | 'model_context_size'> & {
    readonly tokenizer: ModelReference | null;
    readonly train?: VisionPolicySettings['train'];
    readonly trainer?: TrainerSettings;
  },
  prompt: ExamplePrompt,
): Check[] {
  const [model, reader] = [folderOf(start), folderOf(tokenizer ?? start)];
  const conversation = exampleConversation(prompt, train === undefined ? 'words' : 'words and images');
  const vision = train === undefined ? {} : { vision: train };
  return [
    ...(model === null ? [] : [decoderCheck(model, { lora, contextSize, ...vision })]),
    ...(reader === null ? [] : [tokenizerCheck(reader, conversation, model)]),
    // A training server has the model. The image processor comes from the tokenizer's folder.
    ...(train === undefined || trainer?.type !== 'tinker' || reader === null ? [] : [imageInputCheck(reader)]),
  ];
}

/** The folder of a reference. Null for a run or a repository, whose folder is not known yet. */
export function folderOf(reference: ModelReference | null): string | null {
  return typeof reference === 'string' ? reference : null;
}

/** The settings that are added to every question. */
interface ExamplePrompt {
  readonly chat: boolean;
  readonly system: string | null;
  readonly examples?: readonly { readonly prompt: string; readonly answer: string }[];
  readonly variables: Readonly<Record<string, unknown>>;
}

const QUESTION = 'a question';

/** Content of the example question: only words, or words after an image. */
const questions = {
  words: QUESTION,
  'words and images': [{ type: 'image' }, { type: 'text', text: QUESTION }],
} as const satisfies Readonly<Record<string, MessageContent>>;

/** The example conversation. Null if prompts use no chat template. */
export function exampleConversation(
  { chat, system, examples = [], variables }: ExamplePrompt,
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
