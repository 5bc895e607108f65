/** Opens the training of a policy that answers in words. */
import { InternalError } from '../core/errors.js';
import type { PolicyModel } from '../policies/tokens/model.js';
import type { TrainedSettings } from '../schema/run.js';
import { noteDatasets, type Bench } from '../train/bench.js';
import type { Training } from '../train/loop.js';
import { openTokenPolicy, openTokenTraining } from './open_token_policy.js';
import { heldOutBatch, trainingBatch } from './open_words_labelled.js';
import type { WordsTask } from './open_words_task.js';

type WordsTrainingSettings = Parameters<typeof openTokenTraining>[0] & {
  readonly data: NonNullable<TrainedSettings['data']>;
};

/** Training by GRPO or by SFT; of `model`, where it is no decoder that the settings name by themselves. Raises DataError for prompts that cannot be asked, before anything is trained. */
export async function openWordsTraining(
  settings: WordsTrainingSettings,
  bench: Bench,
  task: WordsTask,
  model?: PolicyModel,
): Promise<Training> {
  await task.checkPrompts();
  noteDatasets(bench, settings.data, task.sources);
  const { algorithm, validation } = settings;
  const forms = { constrained: false, separateVocabularies: false };
  return openTokenTraining(settings, bench, {
    task,
    policy: openTokenPolicy(settings, task.format, bench, forms, model),
    batch: async (iteration) => {
      if (algorithm.type === 'sft') return trainingBatch(task, algorithm.sft.batch_size, iteration);
      throw new InternalError('a batch of labels without supervised training');
    },
    heldOutBatch: () => heldOutBatch(task, validation.prompts),
    trained: (_iteration, _prompt, { ids }) => new Float32Array(ids.length).fill(1),
  });
}
