/** Labelled answers in words as supervised training takes them. */
import { DataError } from '../core/errors.js';
import type { TokenAnswer } from '../policies/tokens/batch.js';
import type { Labelled } from '../train/supervised.js';
import { unlabelled, type TextPrompt, type WordsTask } from './open_words_task.js';

export type LabelledText = Labelled<TextPrompt, TokenAnswer>;

/** The batch of an iteration. */
export function trainingBatch(task: WordsTask, size: number, iteration: number): Promise<LabelledText[]> {
  const first = (iteration - 1) * size;
  return Promise.all(Array.from({ length: size }, async (_, i) => labelled(task, await task.prompt(first + i))));
}

/** The first `prompts` rows of each held-out set. */
export function heldOutBatch(task: WordsTask, prompts: number): Promise<LabelledText[]> {
  return Promise.all(
    task.heldOut.flatMap(({ source }) =>
      Array.from({ length: Math.min(source.length, prompts) }, async (_, i) =>
        labelled(task, await task.promptOf(source, i)),
      ),
    ),
  );
}

/** The labelled answer. Raises DataError where the row has none, or one that does not fit. */
async function labelled(task: WordsTask, prompt: TextPrompt): Promise<LabelledText> {
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
