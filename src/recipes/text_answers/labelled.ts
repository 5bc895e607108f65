/** Labelled answers in words as supervised training takes them. */
import { DataError } from '../../core/errors.js';
import type { TokenAnswer } from '../../policies/tokens/batch.js';
import type { Labelled } from '../../train/supervised.js';
import type { TextPrompt, TextTask } from './task.js';

export type LabelledText = Labelled<TextPrompt, TokenAnswer>;

/** The batch of an iteration. */
export function trainingBatch(task: TextTask, size: number, iteration: number): Promise<LabelledText[]> {
  const first = (iteration - 1) * size;
  return Promise.all(Array.from({ length: size }, async (_, i) => labelled(task, await task.prompt(first + i))));
}

/** The first `prompts` rows of each held-out set. */
export function heldOutBatch(task: TextTask, prompts: number): Promise<LabelledText[]> {
  return Promise.all(
    task.heldOut.flatMap(({ source }) =>
      Array.from({ length: Math.min(source.length, prompts) }, async (_, i) =>
        labelled(task, await task.promptOf(source, i)),
      ),
    ),
  );
}

/** The labelled answer, after the words that answers are made to begin with, and its end. Raises DataError where the row has none. */
async function labelled(task: TextTask, prompt: TextPrompt): Promise<LabelledText> {
  const { tokenizer, end } = task.words;
  const prefill = task.settings.policy.assistant_prefill;
  const { expected } = prompt;
  if (expected === undefined) {
    throw new DataError('the row has no labelled answer', {
      where: prompt.id,
      next: 'Supervised training needs one in every row: leave this one out.',
    });
  }
  const words = expected.startsWith(prefill) ? expected.slice(prefill.length) : expected;
  const ids = Int32Array.from([...(await tokenizer.encode(words, { addSpecial: false })), end]);
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
