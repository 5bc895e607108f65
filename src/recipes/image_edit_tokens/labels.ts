/** Labeled edits for supervised training, and the tokens that carry the loss in EARL's cycles of text and vision. */
import type { SftSettings, TrainTokens } from '../../config/schema/algorithm.js';
import { DataError } from '../../core/errors.js';
import type { EditSample } from '../../data/types.js';
import type { TokenAnswer } from '../../train/policies/tokens/batch.js';
import { SPECIAL, type TokenSpace } from '../../train/policies/tokens/emu3.js';
import type { LabeledAnswer } from '../../train/supervised.js';
import { labelsOf, type Labels } from '../shared/training.js';
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
        labeled(task, task.trainingSample(index), sft, iteration > sft.changed_token_weight_after_steps),
      heldOutAt: (source, i) => labeled(task, source.read(i), sft, true),
    },
    { size: sft.batch_size, prompts },
  );
}

async function labeled(
  task: ImageEditTask,
  sample: EditSample,
  sft: SftSettings['sft'],
  stressChanges: boolean,
): Promise<LabeledAnswer<EditPrompt, TokenAnswer>> {
  const ids = await labeledAnswer(task, sample);
  return {
    prompt: await task.promptOf(sample),
    answer: { ids, logProbs: new Float32Array(ids.length), finished: true },
    weights: tokenWeights(task, sample, ids, sft, stressChanges),
  };
}

/** The token ids of the labeled answer. Raises DataError when the sample has no label. */
export async function labeledAnswer(
  { space, settings, thinks }: ImageEditTask,
  sample: EditSample,
): Promise<Int32Array> {
  if (sample.target === null || (thinks && sample.rationale === null)) {
    throw new DataError(
      sample.target === null ? 'the sample has no labeled answer' : 'the sample has no rationale to think',
      { where: sample.id, next: 'Supervised training needs labeled data: name such a dataset in data.train.' },
    );
  }
  const imageOpen = settings.policy.assistant_prefill.endsWith(SPECIAL.imageStart);
  const thought = thinks && sample.rationale !== null ? await space.thought(sample.rationale) : [];
  return Int32Array.from(space.answer(sample.target, thought, imageOpen));
}

/**
 * Weighs vision tokens more if they differ from the source's token at the same position, because most of an edit is a
 * copy.
 */
function tokenWeights(
  { space }: ImageEditTask,
  sample: EditSample,
  ids: Int32Array,
  { changed_token_weight }: SftSettings['sft'],
  stressChanges: boolean,
): Float32Array {
  const source = space.image(sample.source);
  // -1 if the prompt already opened the image. The answer then lacks the image-start token.
  const imageStart = ids.indexOf(space.special.imageStart);
  return Float32Array.from(ids, (id, t) => {
    const changed = t >= imageStart && space.isVision(id) && source[t - imageStart] !== id;
    return changed && stressChanges ? changed_token_weight : 1;
  });
}

/**
 * 1 for tokens of an answer that carry the loss in an iteration (counted from 1), else 0. The loss is divided by the
 * number of ones.
 */
export function trainedTokens(
  iteration: number,
  { ids }: Pick<TokenAnswer, 'ids'>,
  cycle: TrainTokens,
  space: TokenSpace,
): Float32Array {
  const trained = trainedPart(iteration, cycle);
  return Float32Array.from(ids, (id) => (trained === 'all' || space.isVision(id) === (trained === 'vision') ? 1 : 0));
}

function trainedPart(iteration: number, cycle: TrainTokens): 'all' | 'text' | 'vision' {
  if (cycle === 'all') return 'all';
  if ((iteration - 1) % cycle.cycle_steps < cycle.steps) return cycle.tokens;
  return cycle.tokens === 'text' ? 'vision' : 'all';
}
