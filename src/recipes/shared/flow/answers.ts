/** A flow policy's answers: labeled images for supervised training, and latents in an episode's record. */
import { RandomStream } from '../../../core/random.js';
import type { FlowAction, FlowAnswer, FlowRequest } from '../../../train/policies/flow/batch.js';
import { unconditional } from '../../../train/policies/flow/rows.js';
import { velocityGaussian } from '../../../train/policies/flow/steps.js';
import type { FlowSftSettings } from '../../../config/schema/algorithm.js';
import type { Prompt } from '../../../train/scoring/task.js';
import type { LabeledAnswer } from '../../../train/supervised.js';
import { labelsOf, type Labels } from '../training.js';
import { RunError } from '../../../core/errors.js';
import { halfToFloat } from '../../../core/half.js';
import { toStoredBytes } from '../../../core/safetensors.js';
import type { RecordedEpisode } from '../../../run/episodes.js';

/** A prompt with its wanted image. */
export interface ImagePrompt extends Prompt, FlowRequest {
  /** [N, C] of the wanted image, in the form of the model's output. */
  readonly wanted: () => Promise<Float32Array>;
}

/** The source of a recipe's labeled images. */
export interface LabeledImages<P extends ImagePrompt, S extends { readonly length: number }> {
  readonly settings: { readonly seed: number };
  /** Whether the model predicts the clean latents. */
  readonly predictsSample: boolean;
  readonly heldOut: readonly { readonly source: S }[];
  /** The prompt at a global position of the endless training order. */
  prompt(globalIndex: number): Promise<P>;
  promptAt(source: S, index: number): Promise<P>;
}

/** The labels of a task's images. */
export function flowLabels<P extends ImagePrompt, S extends { readonly length: number }>(
  task: LabeledImages<P, S>,
  { batch_size: size, condition_dropout: dropout }: Pick<FlowSftSettings['sft'], 'batch_size' | 'condition_dropout'>,
  prompts: number,
): Labels<P, FlowAnswer> {
  const { seed } = task.settings;
  return labelsOf(
    {
      heldOut: task.heldOut,
      // Each image at one noise level, drawn uniformly, a share of them without words and style.
      at: async (index) => {
        const random = new RandomStream(seed, 'noise levels', index);
        const prompt = await task.prompt(index);
        const isBare = new RandomStream(seed, 'condition dropout', index).uniform() < dropout;
        const shown = isBare ? { ...prompt, flow: unconditional(prompt.flow) } : prompt;
        return labelled(task, shown, random.uniform(), random);
      },
      // Noise levels are evenly spaced and always the same. Neighbors in the set get very different levels.
      heldOutAt: async (source, i, count) => {
        const random = new RandomStream('held-out noise', i);
        const level = ((i * GOLDEN) % 1) * (1 - 1 / count) + 0.5 / count;
        return labelled(task, await task.promptAt(source, i), level, random);
      },
    },
    { size, prompts },
  );
}

const GOLDEN = 0.6180339887498949;

/**
 * x = (1 - sigma) x0 + sigma eps, from which the velocity eps - x0 is learned. For a model that predicts x0, an error is multiplied by 1 / sigma in
 * the velocity: its loss is weighted by sigma^2, which makes it the error of x0.
 */
async function labelled<P extends ImagePrompt>(
  task: Pick<LabeledImages<P, never>, 'predictsSample'>,
  prompt: P,
  sigma: number,
  random: RandomStream,
): Promise<LabeledAnswer<P, FlowAnswer>> {
  const latents = await prompt.wanted();
  const noise = random.normals(new Float32Array(latents.length));
  const action: FlowAction = {
    sigma,
    x: latents.map((x0, i) => (1 - sigma) * x0 + sigma * noise[i]),
    drawn: latents.map((x0, i) => noise[i] - x0),
    gaussian: velocityGaussian,
  };
  return {
    prompt,
    answer: { actions: [action], latents, logProbs: new Float32Array(1), finished: true },
    weights: Float32Array.of(task.predictsSample ? sigma ** 2 : 1),
  };
}

/** Latents in recorded form, and as they are when read from the record. The judge sees the second form, so that rescoring sees the same. */
export function asRecorded(latents: Float32Array): {
  readonly latents: Float32Array;
  readonly record: { readonly latents: string };
} {
  const halves = toStoredBytes(latents, 'F16');
  return { latents: fromHalves(halves), record: { latents: Buffer.from(halves).toString('base64') } };
}

/** Raises RunError for a record without them. */
export function recordedLatents({ key, latents }: Pick<RecordedEpisode, 'key' | 'latents'>): Float32Array {
  if (latents === undefined) throw new RunError('the episode record has no latents', { where: key });
  return fromHalves(Buffer.from(latents, 'base64'));
}

function fromHalves(bytes: Uint8Array): Float32Array {
  return Float32Array.from(new Uint16Array(Uint8Array.from(bytes).buffer), halfToFloat);
}
