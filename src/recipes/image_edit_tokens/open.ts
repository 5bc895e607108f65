/** Opens `image_edit_tokens`: an autoregressive policy of text and vision tokens, trained by SFT or by GRPO against a judge (EARL). */
import type { ImageEditSettings } from './settings.js';
import { comparedEdit } from '../../data/edits.js';
import { Emu3Format, type Emu3Prompt } from '../../policies/tokens/emu3.js';
import type { TokenPolicy } from '../../policies/tokens/policy.js';
import { recordDatasets, type TrainingContext } from '../../train/context.js';
import type { Training } from '../../train/loop.js';
import type { OpenRecipe } from '../../train/opener.js';
import { openTokenPolicy, openTokenTraining, openTrainedPolicy, type TokenForms } from '../open_token_policy.js';
import { makeData, sampleEdits } from './data.js';
import { editLabels } from './labelled.js';
import { unknownWords, type Instructions } from '../open_unknown_words.js';
import { ImageEditTask, spaceOf } from './task.js';
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
