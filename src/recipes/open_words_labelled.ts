/** Labelled answers in words as supervised training takes them. */
import { DataError } from '../core/errors.js';
import type { TokenAnswer } from '../policies/tokens/batch.js';
import type { Labelled } from '../train/supervised.js';
import { labelsOf, type Labels } from './open_training.js';
import { unlabelled, type TextPrompt, type WordsTask } from './open_words_task.js';

/** The labels of a task's rows. */
export function wordLabels(task: WordsTask, sizes: Parameters<typeof labelsOf>[1]): Labels<TextPrompt, TokenAnswer> {
  const { heldOut } = task.data;
  const at = async (index: number) => labelled(task, await task.prompt(index));
  return labelsOf(
    { heldOut, at, heldOutAt: async (source, i) => labelled(task, await task.promptOf(source, i)) },
    sizes,
  );
}

/** The labelled answer. Raises DataError where the row has none, or one that does not fit. */
async function labelled(task: WordsTask, prompt: TextPrompt): Promise<Labelled<TextPrompt, TokenAnswer>> {
  if (prompt.expected === undefined) throw unlabelled('supervised training', prompt.id);
  const ids = await task.labelIds(prompt.expected);
  const [length, size] = [prompt.tokens.ids.length + ids.length, task.settings.policy.model_context_size];
  if (length > size) {
    throw new DataError(`prompt and labelled answer have ${length} tokens: model_context_size is ${size}`, {
      where: prompt.id,
      next: 'Raise policy.model_context_size, or leave this row out.',
    });
  }
  return {
    prompt,
    answer: { ids, logProbs: new Float32Array(ids.length), finished: true },
    weights: new Float32Array(ids.length).fill(1),
  };
}
