/** Checks what a run needs on this machine, without computing: one line for each kind of need. */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { z } from 'zod';
import { CheckpointError, ConfigError, DataError } from '../../core/errors.js';
import { lookAtFirst, openQuestions } from '../../data/conversations.js';
import { openDatalist, readListedFile } from '../../data/datalist.js';
import { openEditDataset } from '../../data/edits.js';
import { lookAtSamples } from '../../data/inpainting.js';
import { checkRows } from '../../data/rows.js';
import { hasFfmpeg, requireFfmpeg } from '../../data/video/ffmpeg.js';
import { wholeList } from '../../data/self_bench.js';
import { FlowImageEncoder } from '../../train/environments/flow_parts.js';
import { describeVisionTokenizer } from '../../train/environments/vision_tokens.js';
import { readConfig, TOKENIZER_FILE } from '../../models/files.js';
import { isPipeline, readPipeline } from '../../models/pipeline.js';
import { openTokenizer, specialNames } from '../../models/tokenizer/open.js';
import type { Tokenizer } from '../../models/tokenizer/tokenizer.js';
import { noTokenizer, openChatTemplate, parse, tokenCount, tokenizerJson } from '../../models/tokenizer/texts.js';
import { describeAutoencoder } from '../../models/networks/autoencoder.js';
import { withAdapter } from '../../compute/nets/decoder/config.js';
import { checkDecoder, remarkOnHead } from '../../models/networks/decoder.js';
import { checkFlowModel, checkFrozenFlow, requireDropout } from '../../train/policies/flow/load.js';
import { checkPipeline } from '../../train/policies/flow/pipeline.js';
import { lacksHubBase, rootOf } from '../../models/adapters/files.js';
import { checkAdapters, describeModel } from '../../models/adapters/decoder.js';
import { processorFolder, requireTokens } from '../../train/policies/tokens/load.js';
import { openPictureProcessor } from '../../models/pictures/processor.js';
import { TokenSpace } from '../../train/policies/tokens/emu3.js';
import { textEncoderIn } from '../../recipes/shared/flow/parts.js';
import type { Need } from '../../recipes/recipe.js';
import { targetOf } from '../../rewards/terms/ocr/similarity.js';

type NeedOf<K extends Need['kind']> = Extract<Need, { readonly kind: K }>;

const checks: { readonly [K in Need['kind']]: (need: NeedOf<K>) => void } = {
  datalist: ({ path }) => void readListedFile(openDatalist(path), 0),
  edits: ({ path }) => void openEditDataset(path).read(0),
  rows: ({ path, columns }) => checkRows(path, columns),
  questions: ({ path, media, frames: { min, max, interval } }) => {
    const questions = openQuestions(path, media);
    // A missing ffmpeg is a need of its own.
    if (hasFfmpeg()) lookAtFirst(questions, { minFrames: min, maxFrames: max, interval });
  },
  ffmpeg: requireFfmpeg,
  self_bench: ({ path, quoted, side, resolution }) =>
    void wholeList(path, quoted ? targetOf : undefined, (list) => lookAtSamples(list, side, resolution)),
  flow_part: ({ part, folder }) => {
    if (existsSync(folder)) partLooks[part](folder);
  },
  flow_model: ({ folder, trains, lora, begun, guidance }) => {
    // The width of its style images' features does not matter here.
    const imagePrompt = begun === null ? null : { ...begun, image_embed_dim: 1 };
    if (existsSync(folder)) checkFlowModel(folder, { trains, lora, imagePrompt }, guidance);
  },
  frozen_flow: ({ folder, guidance, family }) => {
    if (!existsSync(folder)) return;
    if (family === undefined || !isPipeline(folder)) checkFrozenFlow(folder, guidance);
    else checkPipeline(readPipeline(folder), family, guidance);
  },
  guidance: ({ section, dropout }) => requireDropout(dropout, section),
  decoder: lookAtDecoder,
  tokenizer: lookAtTokenizer,
  sight: ({ folder }) => {
    if (!canBeLookedAt(folder)) return;
    describeModel(folder, 'words and pictures');
    openPictureProcessor(processorFolder(folder));
  },
  joint_vocabulary: lookAtVocabulary,
  vision_tokenizer: ({ folder }) => {
    if (existsSync(folder)) describeVisionTokenizer(folder);
  },
};

const partLooks: Readonly<Record<NeedOf<'flow_part'>['part'], (folder: string) => void>> = {
  vae: (folder) => void describeAutoencoder(folder),
  text_encoder: (folder) => void textEncoderIn(folder),
  image_encoder: (folder) => void new FlowImageEncoder(folder),
};

/** Raises what is wrong with it, as opening it would. Ignores a missing folder, and an adapter's missing base. */
export function checkNeed(need: Need): void {
  (checks[need.kind] as (need: Need) => void)(need);
}

/** Why the files of a need's language model are not as they describe themselves; null if they are, or are not there yet. Raises as `checkNeed`. */
export function remarkOn(need: Need): string | null {
  return need.kind === 'decoder' && canBeLookedAt(need.folder) ? remarkOnHead(rootOf(need.folder)) : null;
}

function lookAtDecoder({ folder, lora, contextSize, sees }: NeedOf<'decoder'>): void {
  if (!canBeLookedAt(folder)) return;
  const part = sees === undefined ? 'words' : 'words and pictures';
  const config = describeModel(folder, part);
  checkAdapters(folder, part);
  const positions = checkDecoder(rootOf(folder), part).contextSize;
  if (sees !== undefined) openPictureProcessor(processorFolder(folder));
  if (lora !== null) withAdapter(config, lora, sees);
  if (positions === null || contextSize <= positions) return;
  throw new ConfigError(
    `policy.model_context_size is ${contextSize}, and the model was made for ${positions} positions`,
    {
      where: folder,
      next: `Set policy.model_context_size to ${positions} or less.`,
    },
  );
}

/** Parts of a model that are on the Hub are fetched after the checks of this machine's files, which are then repeated. */
function canBeLookedAt(model: string): boolean {
  return existsSync(model) && !lacksHubBase(model);
}

function lookAtTokenizer({ folder, conversation, model }: NeedOf<'tokenizer'>): void {
  if (!existsSync(folder)) return;
  const json = tokenizerJson(folder);
  if (json === null) throw noTokenizer(folder);
  const parsed = parse(json, join(folder, TOKENIZER_FILE));
  if (conversation !== null) requireTemplate(folder, parsed, conversation);
  const count = tokenCount(parsed);
  if (count === null || model === null || !canBeLookedAt(model)) return;
  const { vocab_size } = describeModel(model);
  requireTokens({ size: count, secondPart: null }, vocab_size, folder);
}

/** Checks that the words, the model and the images of a policy match. */
function lookAtVocabulary({ tokenizer: folder, model, images }: NeedOf<'joint_vocabulary'>): void {
  if (!existsSync(folder)) return;
  const tokenizer = openTokenizer(folder);
  const space = new TokenSpace(tokenizer, { chatWords: false, imageHeader: 'sampled', endAfterImage: true });
  if (images !== null && existsSync(images)) space.requireCodes(describeVisionTokenizer(images).codebook_size);
  if (model === null || !canBeLookedAt(model)) return;
  requireTokens({ size: space.size, secondPart: space.visionStart }, describeModel(model).vocab_size, folder);
  requireSameMap(rootOf(model), tokenizer);
}

/** Emu3's config.json gives every token's id. */
function requireSameMap(folder: string, tokenizer: Tokenizer): void {
  const { vocabulary_map: map } = readConfig<{ readonly vocabulary_map?: unknown }>(folder);
  const ids = z.record(z.string(), z.int()).safeParse(map);
  if (!ids.success) return;
  for (const [token, id] of Object.entries(ids.data)) {
    if (!token.startsWith('<|') || tokenizer.id(token) === id) continue;
    throw new CheckpointError(
      `the model's vocabulary_map says that ${token} is no. ${id}, its tokenizer ${tokenizer.id(token)}`,
      {
        where: folder,
        next: 'Name the tokenizer that the model was trained with in policy.tokenizer.',
      },
    );
  }
}

/** Checks that there is a chat template that accepts conversations like the run's. */
function requireTemplate(
  folder: string,
  tokenizer: unknown,
  { messages, variables }: NonNullable<NeedOf<'tokenizer'>['conversation']>,
): void {
  const template = openChatTemplate(folder, { special: specialNames(folder, tokenizer) });
  if (template !== null) {
    template.renderNow(messages, { addGenerationPrompt: true, variables });
    return;
  }
  throw new DataError('the model has no chat template', {
    where: folder,
    next: 'Set prompt.chat to false for a model that goes on with bare words, or add chat_template.jinja to its folder.',
  });
}
