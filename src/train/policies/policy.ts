/**
 * The contract between training and every policy. Gradients and optimizer state are the policy's business, so that a remote trainer is just another
 * implementation. `P` is a prompt as the policy reads it, `A` its answer, `H` how to sample (temperature, steps of a solver, …). Every rank of a run
 * makes the same calls in the same order.
 */
import type { RandomStream } from '../../core/random.js';
import type { CheckpointFiles } from '../../models/files.js';
import type { LossName, LossSpec } from './losses/table.js';

/** The part of an answer that training reads. Its actions are tokens, or the steps of a solver. */
export interface Answer {
  /** Log-probability of each action when it was sampled. All NaN if the sampler did not report it. */
  readonly logProbs: Float32Array;
  /** Whether it ended by itself rather than at a limit. */
  readonly finished: boolean;
}

/** A prompt with answers to it. */
export interface Group<P, A> {
  readonly prompt: P;
  readonly answers: readonly A[];
}

/** Values of an answer's actions under some weights. Arrays have one entry per action. */
export interface Statistics {
  readonly logProbs: Float32Array;
  /** In nats. Absent if it does not come with computing the action's distribution. */
  readonly entropy?: Float32Array;
  /**
   * For an action drawn from a Gaussian: its mean, a row of numbers per action, empty on ranks that only have the answer's outline. KL is then that
   * of two Gaussians with the same deviation, and the reference has to have means too.
   */
  readonly means?: readonly Float32Array[];
  /** Per action, in nats: KL to the reference, if learning has computed it along the way. */
  readonly divergence?: Float32Array;
  /** Per action, in nats per element: KL to the weights that sampled, if a loss compares the means of Gaussians. */
  readonly moved?: Float32Array;
}

/** One advantage per action of an answer, or a single number if all are equal, so that a long answer takes no memory for it. */
export type Advantages = number | Float32Array;

/** Weights and advantages to learn from one answer. Arrays have one entry per action. */
export interface Target {
  /** Weight of each action. 0 leaves it out. The loss's divisor is included. */
  readonly weights: Float32Array;
  readonly advantages: Advantages;
  /** Statistics under the frozen start. Null if the loss has no KL term. */
  readonly reference: Statistics | null;
  /** Statistics under the weights that sampled. Null if the loss has no ratio. */
  readonly old: Statistics | null;
}

/** Answers to one prompt with their targets. */
export interface TrainGroup<P, A> extends Group<P, A> {
  readonly targets: readonly Target[];
}

export interface LearnReport {
  /** Summed over all ranks. */
  readonly loss: number;
  /** Statistics under the weights that the gradient was taken at, for each group and answer. */
  readonly statistics: readonly (readonly Statistics[])[];
  /** Actions whose KL term was too large and was clamped. */
  readonly klClamped: number;
}

export interface StepReport {
  /** Before clipping. Null if a remote trainer does not report it. */
  readonly gradNorm: number | null;
  /** False if the gradient was not finite: then nothing was changed. */
  readonly applied: boolean;
}

/** Optional abilities of a policy. A run that needs more is rejected when it opens. */
export interface Capabilities {
  readonly losses: readonly LossName[];
  /** Whether it keeps its starting weights, so that a loss can add the distance to them. */
  readonly reference: boolean;
  /** Whether it keeps a moving average of its weights. */
  readonly average: boolean;
  /** Whether it gives the hidden states of what it has written. */
  readonly hiddenStates: boolean;
}

/** Which of a policy's weights: those being trained, their moving average, or the frozen start. */
export type WeightsOf = 'current' | 'average' | 'reference';

export interface SampleRequest<P, H> {
  readonly prompts: readonly P[];
  /**
   * All prompts of the iteration or held-out set that these prompts belong to. Whatever depends on their sizes is the same for any chunks and
   * processes.
   */
  readonly among: readonly P[];
  readonly answersPerPrompt: number;
  readonly how: H;
  readonly weights: Exclude<WeightsOf, 'reference'>;
  /** The random stream of one answer; `prompt` is an index into `prompts`. */
  readonly random: (prompt: number, answer: number) => RandomStream;
  /** The name of one answer's episode, under which remotely sampled answers are stored. Absent if nothing is stored. */
  readonly key?: (prompt: number, answer: number) => string;
}

/** Removes remote data of a deleted checkpoint, unless one of these other checkpoints needs it. */
export type ReleaseCheckpoint = (others: readonly string[]) => Promise<void>;

export interface Policy<P, A extends Answer, H> {
  readonly capabilities: Capabilities;
  /** Whether the actions of its answers are tokens or the noisy steps of an image. */
  readonly actions: 'tokens' | 'steps';
  /** Optimizer steps taken so far. A step that rejected counts unless it certainly changed nothing. */
  readonly steps: number;
  /** Called on every rank before answers are sampled under these weights: sends them to remote samplers. */
  publish?(weights: Exclude<WeightsOf, 'reference'>): Promise<void>;
  /** Called on every rank after its answers were sampled, before anything is learned from them: stores what was sampled remotely. */
  keep?(): Promise<void>;
  /** `answersPerPrompt` answers to each prompt, drawn on this rank alone. */
  sample(request: SampleRequest<P, H>): Promise<A[][]>;
  /** The part of an answer that other ranks receive, which did not sample it. Absent: all of it. */
  outline?(answer: A): A;
  /**
   * Statistics of all groups, on every rank. `among`, here and in learning, is all groups of the iteration that these belong to, if these are not all
   * of them. Values that are compared with each other need the same `among` to have the same bits under the same weights. Means of Gaussians come
   * with those of the reference, and `withMeans` with all.
   */
  statistics(
    groups: readonly Group<P, A>[],
    of: WeightsOf,
    among?: readonly Group<P, A>[],
    withMeans?: boolean,
  ): Promise<Statistics[][]>;
  /** Per action, in nats: an estimate of KL(now || reference), for people to look at. */
  divergence(now: Statistics, reference: Statistics): Float64Array;
  /** Adds the gradient of the loss over all groups to the one that the next step uses. */
  learn(trainGroups: readonly TrainGroup<P, A>[], loss: LossSpec, among?: readonly Group<P, A>[]): Promise<LearnReport>;
  /** Sums the gradient over ranks, clips it and updates the weights. The next `learn` starts over. */
  step(learningRate: number): Promise<StepReport>;
  /** Differs if any bit of the weights differs. Ranks that train together must agree on it. */
  checksum(): Promise<string>;
  /** The files of a checkpoint. They may be views of the weights, so write them before the next step. */
  files(): Promise<CheckpointFiles>;
  /**
   * Called before a checkpoint's folder is removed, of a policy that keeps something of it elsewhere. What is returned is called once the folder is gone,
   * with those of all checkpoints that may need the same. Null if there is nothing to remove.
   */
  release?(folder: string): ReleaseCheckpoint | null;
  /** Loads a checkpoint's files in place. Raises CheckpointError when one is missing, does not fit or is not finite. */
  restore(folder: string, steps: number): Promise<void>;
  dispose(): Promise<void>;
}
