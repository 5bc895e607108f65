/** Opens `text_answers`: a language model that answers in words. */
import { InternalError } from '../../core/errors.js';
import { noteDatasets, type Bench } from '../../train/bench.js';
import type { Training } from '../../train/loop.js';
import type { OpenRecipe } from '../../train/opener.js';
import { openTokenPolicy, openTokenTraining } from '../open_token_policy.js';
import { makeData } from './data.js';
import { heldOutBatch, trainingBatch } from './labelled.js';
import type { TextAnswersSettings } from './settings.js';
import { TextTask } from './task.js';

async function open(settings: TextAnswersSettings, bench: Bench): Promise<Training> {
  const task = await TextTask.open(settings, bench.resolveRun);
  await task.checkPrompts();
  noteDatasets(bench, settings.data, task.sources);
  const { algorithm, validation } = settings;
  const forms = { constrained: false, separateVocabularies: false };
  return openTokenTraining(settings, bench, {
    task,
    policy: openTokenPolicy(settings, task.format, bench, forms),
    batch: async (iteration) => {
      if (algorithm.type === 'sft') return trainingBatch(task, algorithm.sft.batch_size, iteration);
      throw new InternalError('a batch of labels without supervised training');
    },
    heldOutBatch: () => heldOutBatch(task, validation.prompts),
    trained: (_iteration, _prompt, { ids }) => new Float32Array(ids.length).fill(1),
  });
}

export const textAnswers: OpenRecipe<TextAnswersSettings> = {
  makeData,
  open,
  openTask: (settings, resolveRun) => TextTask.open(settings, resolveRun),
};
