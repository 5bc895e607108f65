/** Opens the training of a policy that answers in text. */
import { DataError } from '../../../core/errors.js';
import type { TokenAnswer } from '../../../train/policies/tokens/batch.js';
import type { LanguagePolicy } from '../../../train/policies/tokens/language_policy.js';
import type { TrainedSettings } from '../../../config/schema/run.js';
import { describeRoom } from '../../../train/scoring/prompt_room.js';
import type { Task } from '../../../train/scoring/task.js';
import { recordDatasets, type TrainingContext } from '../../../train/context.js';
import type { Training } from '../../../train/loop.js';
import type { LabeledAnswer } from '../../../train/supervised.js';
import { openTokenTraining, openTrainedPolicy, type PolicyStart } from '../tokens/policy.js';
import { labelsOf, type Labels } from '../training.js';
import { unknownWords, type Instructions } from './vocabulary.js';
import { comparedQuestion, unlabeledRow, type TextPrompt, type WordsTask } from './task.js';

type WordsTrainingSettings = Parameters<typeof openTokenTraining>[0] & {
  readonly data: NonNullable<TrainedSettings['data']>;
};

interface WordsTraining extends PolicyStart {
  /** Wraps the task if words are not the final answers. The wrapper then disposes of the task. */
  readonly around?: (policy: LanguagePolicy) => Promise<Task<TextPrompt, TokenAnswer>>;
  /** Whether its answers are scored. Default: yes. */
  readonly isScored?: boolean;
  /** Whether supervised training keeps its starting weights. Default: no. */
  readonly keepsStart?: boolean;
}

/** Training by GRPO or SFT. Raises DataError for invalid prompts before anything is trained. */
export async function openWordsTraining(
  settings: WordsTrainingSettings,
  context: TrainingContext,
  words: WordsTask,
  { around, isScored = true, keepsStart = false, ...start }: WordsTraining = {},
): Promise<Training> {
  const { algorithm, validation } = settings;
  await words.checkPrompts();
  const rooms = context.handle === null ? [] : await words.room();
  for (const room of rooms) {
    const warning = describeRoom(room, words.roomLimits);
    if (warning !== null) context.log.logger.warn(warning);
  }
  const instructions = [...words.rowsUsed].map(([source, length]): Instructions => ({
    name: source.name,
    length,
    at: (i) => source.ask(i).instruction,
  }));
  for (const sentence of await unknownWords(words.words.tokenizer, instructions)) context.log.logger.warn(sentence);
  await recordDatasets(context, settings, words.data.sources, { at: comparedQuestion, kept: 'memory' });
  const forms = { constrained: false, separateVocabularies: false, keepsStart };
  const policy = await openTrainedPolicy(settings, words.format, context, forms, start);
  return openTokenTraining(settings, context, {
    task: (await around?.(policy)) ?? words,
    policy,
    isScored,
    labels:
      algorithm.type === 'sft'
        ? wordLabels(words, { size: algorithm.sft.batch_size, prompts: validation.prompts })
        : null,
  });
}

/** The labels of a task's rows. */
export function wordLabels(task: WordsTask, sizes: Parameters<typeof labelsOf>[1]): Labels<TextPrompt, TokenAnswer> {
  const { heldOut } = task.data;
  const at = async (index: number) => labeled(task, await task.prompt(index));
  return labelsOf(
    { heldOut, at, heldOutAt: async (source, i) => labeled(task, await task.promptOf(source, i)) },
    sizes,
  );
}

/** The labeled answer. Raises DataError when the row has none or when it does not fit. */
async function labeled(task: WordsTask, prompt: TextPrompt): Promise<LabeledAnswer<TextPrompt, TokenAnswer>> {
  if (prompt.expected === undefined) throw unlabeledRow('supervised training', prompt.id);
  const ids = await task.labelIds(prompt.expected);
  const [length, size] = [prompt.tokens.ids.length + ids.length, task.settings.policy.model_context_size];
  if (length > size) {
    throw new DataError(`prompt and labeled answer have ${length} tokens; model_context_size is ${size}`, {
      where: prompt.id,
      next: 'Raise policy.model_context_size, or remove this row.',
    });
  }
  return {
    prompt,
    answer: { ids, logProbs: new Float32Array(ids.length), finished: true },
    weights: new Float32Array(ids.length).fill(1),
  };
}
