/** Labelled pictures as supervised training takes them: at drawn noise levels the velocity that leads from noise to the picture (flow matching). */
import { RandomStream } from '../core/random.js';
import type { FlowAction, FlowAnswer, FlowAsked } from '../policies/flow/batch.js';
import { unconditional } from '../policies/flow/rows.js';
import type { FlowSampling } from '../policies/flow/sampler.js';
import { velocityGaussian } from '../policies/flow/steps.js';
import type { FlowSftSettings } from '../schema/algorithm.js';
import type { Prompt } from '../scoring/task.js';
import { scheduleOf } from '../train/schedule.js';
import { SupervisedTraining, type Labelled, type SupervisedDeps } from '../train/supervised.js';

/** A prompt with the picture that is wanted of it. */
export interface PicturePrompt extends Prompt, FlowAsked {
  /** [N, C] of the wanted picture, as the model would leave it. */
  readonly wanted: () => Promise<Float32Array>;
}

/** Where a recipe's labelled pictures come from. */
export interface LabelledPictures<P extends PicturePrompt, S extends { readonly length: number }> {
  readonly settings: { readonly seed: number };
  /** Whether the model predicts the clean latents. */
  readonly predictsSample: boolean;
  readonly heldOut: readonly { readonly source: S }[];
  /** The prompt at a global position of the endless training order. */
  prompt(globalIndex: number): Promise<P>;
  promptAt(source: S, index: number): Promise<P>;
}

type Deps<P extends PicturePrompt> = SupervisedDeps<P, FlowAnswer, FlowSampling>;

/** A task with labelled pictures that ends with what trains on them. */
interface Ending {
  dispose(): Promise<void>;
}

/** Training on a task's labelled pictures; the held-out evaluation, where there is one, ends the policy and the task with itself. */
export function flowMatching<P extends PicturePrompt, S extends { readonly length: number }>(
  settings: Parameters<typeof scheduleOf>[0] & {
    readonly algorithm: FlowSftSettings;
    readonly validation: { readonly prompts: number };
  },
  {
    task,
    ...parts
  }: { readonly task: LabelledPictures<P, S> & Ending } & Pick<Deps<P>, 'policy' | 'heldOut' | 'besides'>,
): SupervisedTraining<P, FlowAnswer, FlowSampling> {
  const { algorithm, validation } = settings;
  return new SupervisedTraining<P, FlowAnswer, FlowSampling>({
    ...parts,
    schedule: scheduleOf(settings),
    sft: algorithm.sft,
    batch: (iteration) => trainingBatch(task, algorithm.sft, iteration),
    heldOutBatch: () => heldOutBatch(task, validation.prompts),
    dispose: async () => {
      if (parts.heldOut !== null) return parts.heldOut.dispose();
      await parts.policy.dispose();
      await task.dispose();
    },
  });
}

/** The batch of an iteration: every picture at one noise level, drawn evenly, a share of them without words and style. */
export function trainingBatch<P extends PicturePrompt>(
  task: Pick<LabelledPictures<P, never>, 'settings' | 'predictsSample' | 'prompt'>,
  { batch_size: size, condition_dropout: dropout }: Pick<FlowSftSettings['sft'], 'batch_size' | 'condition_dropout'>,
  iteration: number,
): Promise<Labelled<P, FlowAnswer>[]> {
  const { seed } = task.settings;
  const first = (iteration - 1) * size;
  return Promise.all(
    Array.from({ length: size }, async (_, i) => {
      const random = new RandomStream(seed, 'noise levels', first + i);
      const prompt = await task.prompt(first + i);
      const isBare = new RandomStream(seed, 'condition dropout', first + i).uniform() < dropout;
      const shown = isBare ? { ...prompt, flow: unconditional(prompt.flow) } : prompt;
      return labelled(task, shown, random.uniform(), random);
    }),
  );
}

/** The first `prompts` samples of each held-out set, at noise levels that are spread evenly over them, always the same. */
export function heldOutBatch<P extends PicturePrompt, S extends { readonly length: number }>(
  task: LabelledPictures<P, S>,
  prompts: number,
): Promise<Labelled<P, FlowAnswer>[]> {
  return Promise.all(
    task.heldOut.flatMap(({ source }) => {
      const count = Math.min(source.length, prompts);
      return Array.from({ length: count }, async (_, i) => {
        const random = new RandomStream('held-out noise', i);
        // Neighbours in the set lie far apart in noise.
        const level = ((i * GOLDEN) % 1) * (1 - 1 / count) + 0.5 / count;
        return labelled(task, await task.promptAt(source, i), level, random);
      });
    }),
  );
}

const GOLDEN = 0.6180339887498949;

/**
 * x = (1 - sigma) x0 + sigma eps, of which the velocity eps - x0 is learnt. A model that predicts x0 errs by 1 / sigma as much in the velocity:
 * its loss is weighed by sigma^2, which makes it the error of x0.
 */
async function labelled<P extends PicturePrompt>(
  task: Pick<LabelledPictures<P, never>, 'predictsSample'>,
  prompt: P,
  sigma: number,
  random: RandomStream,
): Promise<Labelled<P, FlowAnswer>> {
  const latents = await prompt.wanted();
  const noise = latents.map(() => random.normal());
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
