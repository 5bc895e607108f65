/** Opens `image_edit_tokens`: an autoregressive policy of text and vision tokens, trained by SFT or by GRPO against a judge (EARL). */
import type { ImageEditSettings } from './settings.js';
import { comparedEdit, openEditDataset } from '../../data/edits.js';
import { Emu3Format, type Emu3Prompt } from '../../train/policies/tokens/emu3.js';
import type { TokenPolicy } from '../../train/policies/tokens/policy.js';
import { recordDatasets, type TrainingContext, type OpenRecipe } from '../../train/context.js';
import type { Training } from '../../train/loop.js';
import { openTokenPolicy, openTokenTraining, openTrainedPolicy, type TokenForms } from '../shared/tokens/policy.js';
import { editLabels, trainedTokens } from './labels.js';
import { unknownWords, type Instructions } from '../shared/words/vocabulary.js';
import { ImageEditTask, spaceOf } from './task.js';
import { decodeImage } from '../../core/images/image.js';
import type { EditSample } from '../../data/types.js';
import { loadVisionTokenizer } from '../../train/environments/vision_tokens.js';
import { modelFolder, type RunResolver } from '../../models/reference.js';
import { sampledSets, type SampledSet, type SampleRow } from '../../train/scoring/sample_rows.js';
import { editData, type ImageTokenizerLike } from '../../data/tiny/dataset.js';

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
  const format = new Emu3Format(task.space);
  const policy = await openTrainedPolicy(settings, format, context, formsOf(settings));
  return openTokenTraining(settings, context, {
    task,
    policy,
    labels: ({ sft }) => editLabels(task, sft, settings.validation.prompts),
    trained: (algorithm) => (iteration, prompt, answer) =>
      trainedTokens(iteration, prompt, answer, { algorithm, policy: settings.policy }, format),
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

export const imageEditTokens: OpenRecipe<ImageEditSettings> = {
  makeData,
  open,
  openTask: async (settings, resolveRun) => ImageEditTask.open(settings, resolveRun),
  sampleRows: sampleEdits,
  servedFormat: (settings, resolveRun) => new Emu3Format(spaceOf(settings, resolveRun)),
};

/** Makes them if a config needs them and they do not exist yet; needs the finished tokenizer that `environment.model` names. */
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

/** The codes of drawn rows are not used: rewards see pixels. */
const noCodes: ImageTokenizerLike = {
  id: 'none',
  encode: async (images) => images.map(() => ({ height: 1, width: 1, codes: new Int32Array(1) })),
};

/**
 * The first edits of each dataset, with the labelled picture, the unchanged source, and an answer without a picture. Leaves out samples with only
 * codes, which a model would have to decode.
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
      ...(truth === null ? [] : [{ what: 'the labelled picture', edited: truth }]),
      { what: 'the source, unchanged', edited: source },
      { what: 'an answer without a picture', edited: null },
    ],
  };
}
