/** Opens `image_edit_tokens`: an autoregressive policy of text and vision tokens, trained by SFT or by GRPO against a judge (EARL). */
import { setImmediate } from 'node:timers/promises';
import type { ImageEditSettings } from './settings.js';
import { comparedEdit } from '../../data/edits.js';
import type { EditSample, SampleSource } from '../../data/types.js';
import { Emu3Format, type Emu3Prompt } from '../../policies/tokens/emu3/format.js';
import type { TokenAnswer } from '../../policies/tokens/batch.js';
import type { TokenPolicy } from '../../policies/tokens/policy.js';
import { recordDatasets, type TrainingContext } from '../../train/context.js';
import type { VisionGrpoSettings } from '../../schema/algorithm.js';
import type { DrawnCells, Regions } from '../../train/credit.js';
import type { Training } from '../../train/loop.js';
import type { OpenRecipe } from '../../train/opener.js';
import { openTokenPolicy, openTokenTraining, openTrainedPolicy, type TokenForms } from '../open_token_policy.js';
import { makeData, sampleEdits } from './data.js';
import { editLabels } from './labelled.js';
import { drawnCells, hasLabel, labelledCells, maskedCells } from './drawn_cells.js';
import { unknownWords, type Instructions } from '../open_unknown_words.js';
import { ImageEditTask, spaceOf, type EditPrompt } from './task.js';
import { trainedTokens } from './trained_tokens.js';

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
  const { algorithm } = settings;
  if (algorithm.type === 'grpo' && algorithm.advantage.region === 'mask' && paysRegions(settings)) {
    await checkMasks(task);
  }
  const format = new Emu3Format(task.space);
  const policy = await openTrainedPolicy(settings, format, context, formsOf(settings));
  return openTokenTraining(settings, context, {
    task,
    policy,
    labels: ({ sft }) => editLabels(task, sft, settings.validation.prompts),
    trained: (algorithm) => (iteration, prompt, answer) =>
      trainedTokens(iteration, prompt, answer, { algorithm, policy: settings.policy }, format),
    regions: ({ advantage }) => (paysRegions(settings) ? { regions: regionsOf(task, advantage) } : {}),
  });
}

function paysRegions({ reward }: ImageEditSettings): boolean {
  return reward.terms.some(({ credit }) => credit !== 'all');
}

/** A task, as far as its regions are concerned. */
interface RegionTask extends Pick<ImageEditTask, 'space'> {
  readonly data: { readonly train: readonly Pick<SampleSource<EditSample>, 'length' | 'read'>[] };
}

/**
 * Raises DataError where the first sample of a dataset lacks the label or mask that is to tell its region.
 */
export function regionsOf(
  { space, data }: RegionTask,
  {
    region,
    region_share: share,
    region_border: border,
  }: Pick<VisionGrpoSettings['advantage'], 'region' | 'region_share' | 'region_border'>,
): Regions<EditPrompt, TokenAnswer> {
  const cellsOf = (prompt: EditPrompt, answer: TokenAnswer): DrawnCells | null => drawnCells(prompt, answer, space);
  if (region === 'group') return { cellsOf, share, border };
  for (const source of data.train) firstOf[region](source.read(0));
  if (region === 'label') {
    return { cellsOf, share, border, labelled: ({ sample }) => (hasLabel(sample) ? labelledCells(sample) : null) };
  }
  return { cellsOf, share, border, labelled: ({ sample }) => sample.mask };
}

/** Samples between which other work has its turn. */
const READ_AT_ONCE = 64;

/** Raises DataError for the first sample of training with a mask of another size or an empty one: reading checks it. */
export async function checkMasks({ data }: Pick<RegionTask, 'data'>): Promise<void> {
  for (const source of data.train) {
    for (let index = 0; index < source.length; index++) {
      source.read(index);
      if (index % READ_AT_ONCE === 0) await setImmediate();
    }
  }
}

const firstOf = { label: labelledCells, mask: maskedCells };

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
