/** Opens `image_edit_tokens`: an autoregressive policy of text and vision tokens, trained by SFT or by GRPO against a judge (EARL). */
import { existsSync, writeFileSync } from 'node:fs';
import { z } from 'zod';
import { CheckpointError, DataError } from '../../core/errors.js';
import { describeModel } from '../../models/adapters/decoder.js';
import { rootOf } from '../../models/adapters/files.js';
import { readConfig } from '../../models/files.js';
import { openTokenizer } from '../../models/tokenizer/open.js';
import type { Tokenizer } from '../../models/tokenizer/tokenizer.js';
import { requireTokens } from '../../train/policies/tokens/load.js';
import { checkOf, datasetChecks, decoderCheck, folderOf, isComplete } from '../shared/checks.js';
import type { ImageEditSettings } from './settings.js';
import { comparedEdit, openEditDataset } from '../../data/edits.js';
import { Emu3Format, TokenSpace, type Emu3Prompt, SPECIAL } from '../../train/policies/tokens/emu3.js';
import type { TokenPolicy } from '../../train/policies/tokens/policy.js';
import { recordDatasets, type TrainingContext } from '../../train/context.js';
import type { OpenRecipe, WantedEdit } from '../recipe.js';
import type { Training } from '../../train/loop.js';
import { openTokenPolicy, openTokenTraining, openTrainedPolicy, type TokenForms } from '../shared/tokens/policy.js';
import { unknownWords, type Instructions } from '../shared/words/vocabulary.js';
import { ImageEditTask, spaceOf, type EditPrompt } from './task.js';
import { decodeImage } from '../../core/images/image.js';
import type { EditSample } from '../../data/types.js';
import { describeVisionTokenizer, loadVisionTokenizer } from '../../train/environments/vision_tokens.js';
import { modelFolder, type RunResolver } from '../../models/reference.js';
import { sampledSets, type SampledSet, type SampleRow } from '../../train/scoring/sample_rows.js';
import { editData, type ImageTokenizerLike } from '../../data/tiny/dataset.js';
import { join } from 'node:path';
import { packDataset } from '../../data/pack.js';
import { imageCodes } from '../../train/policies/tokens/image_codes.js';
import type { SftSettings, TrainTokens } from '../../config/schema/algorithm.js';
import type { TokenAnswer } from '../../train/policies/tokens/batch.js';
import type { LabeledAnswer } from '../../train/supervised.js';
import { labelsOf, type Labels } from '../shared/training.js';

async function open(settings: ImageEditSettings, context: TrainingContext): Promise<Training> {
  const task = ImageEditTask.open(settings, context.resolveRun);
  await task.checkFirst();
  const instructions = task.data.sources.map((source): Instructions => ({
    name: source.name,
    length: source.length,
    at: (i) => source.read(i).instruction,
  }));
  for (const sentence of await unknownWords(task.tokenizer, instructions)) context.log.logger.warn(sentence);
  await recordDatasets(context, settings, task.data.sources, { at: comparedEdit, kept: 'files' });
  const { algorithm, validation } = settings;
  const trainedCycle = algorithm.type === 'sft' ? 'all' : algorithm.train_tokens;
  const format = new Emu3Format(task.space);
  const policy = await openTrainedPolicy(settings, format, context, formsOf(settings));
  return openTokenTraining(settings, context, {
    task,
    policy,
    labels: algorithm.type === 'sft' ? editLabels(task, algorithm.sft, validation.prompts) : null,
    trained: (iteration, _prompt, answer) => trainedTokens(iteration, answer, trainedCycle, format.space),
  });
}

/** The policy that this process trains: from the referenced model, or with random weights. */
export function openPolicy(
  settings: ImageEditSettings,
  { space }: ImageEditTask,
  context: Pick<TrainingContext, 'group' | 'resolveRun'>,
): TokenPolicy<Emu3Prompt> {
  return openTokenPolicy(settings, new Emu3Format(space), context, formsOf(settings));
}

function formsOf({ policy }: ImageEditSettings): TokenForms {
  return {
    constrained: policy.emu3_use_logit_processor,
    separateVocabularies: policy.separate_language_and_vision_vocabs,
  };
}

/** Opens a datalist of edits and reads its first edit. */
export const editsCheck = checkOf('edits', (path: string) => void openEditDataset(path).read(0));

export const imageTokenizerCheck = checkOf('image tokenizer', (folder: string) => {
  if (existsSync(folder)) describeVisionTokenizer(folder);
});

/**
 * Checks that the joint vocabulary matches the model that reads its tokens and the image tokenizer of its codes. These
 * two folders are null if not known yet.
 */
export const vocabularyCheck = checkOf('vocabulary', (folder: string, model: string | null, images: string | null) => {
  if (!existsSync(folder)) return;
  const tokenizer = openTokenizer(folder);
  const space = new TokenSpace(tokenizer, { chatWords: false, imageHeader: 'sampled', endAfterImage: true });
  if (images !== null && existsSync(images)) space.requireCodes(describeVisionTokenizer(images).codebook_size);
  if (model === null || !isComplete(model)) return;
  requireTokens({ size: space.size, secondPart: space.visionStart }, describeModel(model).vocab_size, folder);
  requireSameIds(rootOf(model), tokenizer);
});

/** Emu3's config.json lists the id of every token. */
function requireSameIds(folder: string, tokenizer: Tokenizer): void {
  const { vocabulary_map: map } = readConfig<{ readonly vocabulary_map?: unknown }>(folder);
  const ids = z.record(z.string(), z.int()).safeParse(map);
  if (!ids.success) return;
  for (const [token, id] of Object.entries(ids.data)) {
    if (!token.startsWith('<|') || tokenizer.id(token) === id) continue;
    throw new CheckpointError(
      `the id of ${token} is ${id} in the model's vocabulary_map and ${tokenizer.id(token)} in its tokenizer`,
      { where: folder, next: 'Name the tokenizer that the model was trained with in policy.tokenizer.' },
    );
  }
}

export const imageEditTokens: OpenRecipe<ImageEditSettings> = {
  checks: (settings) => {
    const { policy, environment } = settings;
    const { lora, model_context_size: contextSize } = policy;
    const [model, tokenizer, images] = [policy.model, policy.tokenizer, environment.model].map(folderOf);
    return [
      ...datasetChecks(settings, editsCheck),
      ...(model === null ? [] : [decoderCheck(model, { lora, contextSize })]),
      ...(tokenizer === null ? [] : [vocabularyCheck(tokenizer, model, images)]),
      ...(images === null ? [] : [imageTokenizerCheck(images)]),
    ];
  },
  makeData,
  open,
  writeEdit,
  openTask: async (settings, resolveRun) => ImageEditTask.open(settings, resolveRun),
  sampleRows: sampleEdits,
  servedFormat: (settings, resolveRun) => new Emu3Format(spaceOf(settings, resolveRun)),
};

/**
 * Makes the data of the tiny world if the config needs it and it does not exist. Requires the finished tokenizer in
 * `environment.model`.
 */
export async function makeData(
  settings: ImageEditSettings,
  resolveRun: RunResolver,
  say: (line: string) => void,
): Promise<void> {
  if (settings.data.tiny === null) return;
  const tokenizer = loadVisionTokenizer(modelFolder(settings.environment.model, resolveRun), { provider: 'cpu' });
  try {
    await editData(tokenizer).make(settings, resolveRun, say);
  } finally {
    await tokenizer.dispose();
  }
}

/** An image tokenizer without codes. Rewards read pixels. */
const noCodes: ImageTokenizerLike = {
  id: 'none',
  encode: async (images) => images.map(() => ({ height: 1, width: 1, codes: new Int32Array(1) })),
};

/**
 * The first edits of each dataset. The answers are the labeled image, the unchanged source, and no image. Leaves out
 * samples that have only codes, because decoding them needs a model.
 */
export function sampleEdits(settings: ImageEditSettings, count: number): Promise<SampledSet[]> {
  return editData(noCodes).sampled(settings, count, (place) =>
    sampledSets(settings.data, async ({ path }) => {
      const source = openEditDataset(place(path));
      const first = Array.from({ length: Math.min(count, source.length) }, (_, index) => source.read(index));
      const whole = first.filter(({ sourcePng }) => sourcePng !== null);
      return Promise.all(whole.map((sample) => sampleOf(sample, source.name)));
    }),
  );
}

async function sampleOf(sample: EditSample, dataset: string): Promise<SampleRow> {
  const { id, instruction, sourcePng, targetPng } = sample;
  const source = sourcePng === null ? null : await decodeImage(sourcePng, id);
  const truth = targetPng === null ? null : await decodeImage(targetPng, id);
  return {
    place: `${dataset}: ${id}`,
    item: { instruction, source, truth },
    answers: [
      ...(truth === null ? [] : [{ what: 'the labeled image', edited: truth }]),
      { what: 'the source, unchanged', edited: source },
      { what: 'an answer without an image', edited: null },
    ],
  };
}

/**
 * Packs an edit into the run's image codes. The image gets the size of the run's held-out images, unless the
 * tokenizer's processor resizes it.
 */
export async function writeEdit(
  settings: ImageEditSettings,
  resolveRun: RunResolver,
  { image, instruction, count, folder }: WantedEdit,
): Promise<string> {
  const tokenizer = loadVisionTokenizer(modelFolder(settings.environment.model, resolveRun), { provider: 'cpu' });
  try {
    const { patch } = tokenizer.config;
    const [heldOut] = settings.data.validation;
    const { height, width } = openEditDataset(editData(tokenizer).placesOf(settings)(heldOut.path)).read(0).source;
    const instructions = join(folder, 'edit.jsonl');
    const line = JSON.stringify({ source: image, instruction, split: SPLIT });
    writeFileSync(instructions, `${line}\n`.repeat(count));
    const out = join(folder, 'packed');
    const size = tokenizer.sizing === null ? { height: height * patch, width: width * patch } : null;
    await packDataset({ instructions, out, size, codes: imageCodes(tokenizer) });
    return join(out, SPLIT);
  } finally {
    await tokenizer.dispose();
  }
}

const SPLIT = 'validation';

/** The labels of a task's edits. */
export function editLabels(
  task: ImageEditTask,
  sft: SftSettings['sft'],
  prompts: number,
): Labels<EditPrompt, TokenAnswer> {
  const { heldOut } = task.data;
  return labelsOf(
    {
      heldOut,
      at: (index, iteration) =>
        labeled(task, task.trainingSample(index), sft, iteration > sft.changed_token_weight_after_steps),
      heldOutAt: (source, i) => labeled(task, source.read(i), sft, true),
    },
    { size: sft.batch_size, prompts },
  );
}

async function labeled(
  task: ImageEditTask,
  sample: EditSample,
  sft: SftSettings['sft'],
  stressChanges: boolean,
): Promise<LabeledAnswer<EditPrompt, TokenAnswer>> {
  const ids = await labeledAnswer(task, sample);
  return {
    prompt: await task.promptOf(sample),
    answer: { ids, logProbs: new Float32Array(ids.length), finished: true },
    weights: tokenWeights(task, sample, ids, sft, stressChanges),
  };
}

/** The token ids of the labeled answer. Raises DataError when the sample has no label. */
export async function labeledAnswer(
  { space, settings, thinks }: ImageEditTask,
  sample: EditSample,
): Promise<Int32Array> {
  if (sample.target === null || (thinks && sample.rationale === null)) {
    throw new DataError(
      sample.target === null ? 'the sample has no labeled answer' : 'the sample has no rationale to think',
      { where: sample.id, next: 'Supervised training needs labeled data: name such a dataset in data.train.' },
    );
  }
  const imageOpen = settings.policy.assistant_prefill.endsWith(SPECIAL.imageStart);
  const thought = thinks && sample.rationale !== null ? await space.thought(sample.rationale) : [];
  return Int32Array.from(space.answer(sample.target, thought, imageOpen));
}

/**
 * Weighs vision tokens more if they differ from the source's token at the same position, because most of an edit is a
 * copy.
 */
function tokenWeights(
  { space }: ImageEditTask,
  sample: EditSample,
  ids: Int32Array,
  { changed_token_weight }: SftSettings['sft'],
  stressChanges: boolean,
): Float32Array {
  const source = space.image(sample.source);
  // -1 if the prompt already opened the image. The answer then lacks the image-start token.
  const imageStart = ids.indexOf(space.special.imageStart);
  return Float32Array.from(ids, (id, t) => {
    const changed = t >= imageStart && space.isVision(id) && source[t - imageStart] !== id;
    return changed && stressChanges ? changed_token_weight : 1;
  });
}

/**
 * 1 for tokens of an answer that carry the loss in an iteration (counted from 1), else 0. The loss is divided by the
 * number of ones.
 */
export function trainedTokens(
  iteration: number,
  { ids }: Pick<TokenAnswer, 'ids'>,
  cycle: TrainTokens,
  space: TokenSpace,
): Float32Array {
  const trained = trainedPart(iteration, cycle);
  return Float32Array.from(ids, (id) => (trained === 'all' || space.isVision(id) === (trained === 'vision') ? 1 : 0));
}

function trainedPart(iteration: number, cycle: TrainTokens): 'all' | 'text' | 'vision' {
  if (cycle === 'all') return 'all';
  if ((iteration - 1) % cycle.cycle_steps < cycle.steps) return cycle.tokens;
  return cycle.tokens === 'text' ? 'vision' : 'all';
}
