/** Labelled edits for supervised training. */
import type { SftSettings } from '../../schema/algorithm.js';
import { DataError } from '../../core/errors.js';
import type { EditSample } from '../../data/types.js';
import type { TokenAnswer } from '../../policies/tokens/batch.js';
import { SPECIAL } from '../../policies/tokens/emu3.js';
import type { LabelledAnswer } from '../../train/supervised.js';
import { labelsOf, type Labels } from '../open_training.js';
import type { EditPrompt, ImageEditTask } from './task.js';

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
        labelled(task, task.trainingSample(index), sft, iteration > sft.changed_token_weight_after_steps),
      heldOutAt: (source, i) => labelled(task, source.read(i), sft, true),
    },
    { size: sft.batch_size, prompts },
  );
}

async function labelled(
  task: ImageEditTask,
  sample: EditSample,
  sft: SftSettings['sft'],
  stressChanges: boolean,
): Promise<LabelledAnswer<EditPrompt, TokenAnswer>> {
  const ids = await labelledAnswer(task, sample);
  return {
    prompt: await task.promptOf(sample),
    answer: { ids, logProbs: new Float32Array(ids.length), finished: true },
    weights: tokenWeights(task, sample, ids, sft, stressChanges),
  };
}

/** The labelled answer's ids. Raises DataError when the sample has none. */
export async function labelledAnswer(
  { space, settings, thinks }: ImageEditTask,
  sample: EditSample,
): Promise<Int32Array> {
  if (sample.target === null || (thinks && sample.rationale === null)) {
    throw new DataError(
      sample.target === null ? 'the sample has no labelled answer' : 'the sample has no rationale to think',
      { where: sample.id, next: 'Supervised training needs labelled data: name such a dataset in data.train.' },
    );
  }
  const imageOpen = settings.policy.assistant_prefill.endsWith(SPECIAL.imageStart);
  const thought = thinks && sample.rationale !== null ? await space.thought(sample.rationale) : [];
  return Int32Array.from(space.answer(sample.target, thought, imageOpen));
}

/** Vision tokens that differ from the source's at the same position weigh more: most of an edit is a copy. */
function tokenWeights(
  { space }: ImageEditTask,
  sample: EditSample,
  ids: Int32Array,
  { text_token_weight, changed_token_weight }: SftSettings['sft'],
  stressChanges: boolean,
): Float32Array {
  const source = space.image(sample.source);
  // -1 if the prompt opened the image: the answer then lacks the source's first token.
  const imageStart = ids.indexOf(space.special.imageStart);
  return Float32Array.from(ids, (id, t) => {
    if (t < imageStart) return text_token_weight;
    const changed = space.isVision(id) && source[t - imageStart] !== id;
    return changed && stressChanges ? changed_token_weight : 1;
  });
}
