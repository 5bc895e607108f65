/**
 * The contract between training and every policy.
 * The policy has gradients and optimizer state, so that a remote trainer is just another implementation. `P` is a
 * prompt for the policy, `A` its answer, and `H` the sampling settings (temperature, solver steps, …). All ranks of a
 * run make the same calls in the same order.
 */
import type { RandomStream } from '../../core/random.js';
import type { CheckpointFiles } from '../../models/files.js';
import type { LossName, LossSpec } from './losses/table.js';

/** The part of an answer that training reads. Actions are tokens, or steps of a solver. */
export interface Answer {
  /** Log-probability of each action at sampling. All NaN if the sampler did not report it. */
  readonly logProbs: Float32Array;
  /** Whether it ended before a limit. */
  readonly finished: boolean;
}

/** A prompt and its answers. */
export interface Group<P, A> {
  readonly prompt: P;
  readonly answers: readonly A[];
}

/** Values of an answer's actions under some weights, one entry per action. */
export interface Statistics {
  readonly logProbs: Float32Array;
  /** In nats. Absent if computing the action's distribution does not yield it. */
  readonly entropy?: Float32Array;
  /**
   * For Gaussian actions: the mean of each action, one row of numbers per action. Empty on ranks that only have the
   * answer's outline. KL is then between two Gaussians with equal deviation, and the reference needs means, too.
   */
  readonly means?: readonly Float32Array[];
  /** KL to the reference per action, in nats, if learning has computed it. */
  readonly divergence?: Float32Array;
  /** KL to the weights that sampled per action, in nats per element, if a loss compares means of Gaussians. */
  readonly moved?: Float32Array;
}

/** One advantage per action, or a single number if all are equal, which saves memory for long answers. */
export type Advantages = number | Float32Array;

/** Weights and advantages for learning from one answer, one entry per action. */
export interface Target {
  /** Weight of each action, including the loss's divisor. 0 excludes the action. */
  readonly weights: Float32Array;
  readonly advantages: Advantages;
  /** Statistics under the starting weights. Null if the loss has no KL term. */
  readonly reference: Statistics | null;
  /** Statistics under the weights that sampled. Null if the loss has no ratio. */
  readonly old: Statistics | null;
}

/** A prompt's answers and their targets. */
export interface TrainGroup<P, A> extends Group<P, A> {
  readonly targets: readonly Target[];
}

export interface LearnReport {
  /** Sum over all ranks. */
  readonly loss: number;
  /** Statistics under the weights of the gradient, for each group and answer. */
  readonly statistics: readonly (readonly Statistics[])[];
  /** Number of actions whose KL term was too large and was clamped. */
  readonly klClamped: number;
}

export interface StepReport {
  /** Norm before clipping. Null if a remote trainer does not report it. */
  readonly gradNorm: number | null;
  /** False if the gradient was not finite. Nothing was changed then. */
  readonly applied: boolean;
}

/** Optional abilities of a policy. Opening a run that needs more fails. */
export interface Capabilities {
  readonly losses: readonly LossName[];
  /** Whether it keeps its starting weights, so that a loss can add KL to them. */
  readonly reference: boolean;
  /** Whether it keeps a moving average of its weights. */
  readonly average: boolean;
  /** Whether it returns hidden states of its answers. */
  readonly hiddenStates: boolean;
}

/** A kind of weights: the trained ones, their moving average, or the starting ones. */
export type WeightsOf = 'current' | 'average' | 'reference';

export interface SampleRequest<P, H> {
  readonly prompts: readonly P[];
  /**
   * All prompts of the iteration or held-out set that `prompts` belongs to. Everything that depends on their sizes is
   * then equal for any division into chunks and processes.
   */
  readonly among: readonly P[];
  readonly answersPerPrompt: number;
  readonly how: H;
  readonly weights: Exclude<WeightsOf, 'reference'>;
  /** The random stream of one answer. `prompt` is an index into `prompts`. */
  readonly random: (prompt: number, answer: number) => RandomStream;
  /** The key of an answer's episode, under which remotely sampled answers are stored. Absent if nothing is stored. */
  readonly key?: (prompt: number, answer: number) => string;
}

/** Deletes remote data of a deleted checkpoint, unless one of the `others` needs it. */
export type ReleaseCheckpoint = (others: readonly string[]) => Promise<void>;

export interface Policy<P, A extends Answer, H> {
  readonly capabilities: Capabilities;
  /** Whether its actions are tokens or noisy solver steps of an image. */
  readonly actions: 'tokens' | 'steps';
  /** Number of optimizer steps so far. A failed step counts unless it certainly changed nothing. */
  readonly steps: number;
  /** Sends weights to remote samplers. Called on every rank before answers are sampled under them. */
  publish?(weights: Exclude<WeightsOf, 'reference'>): Promise<void>;
  /** Stores remotely sampled answers. Called on every rank before anything is learned from them. */
  keep?(): Promise<void>;
  /** Samples `answersPerPrompt` answers to each prompt, on this rank alone. */
  sample(request: SampleRequest<P, H>): Promise<A[][]>;
  /** The part of an answer that other ranks receive. Absent if they receive all of it. */
  outline?(answer: A): A;
  /**
   * Statistics of all groups, on every rank.
   * `among` contains all groups of the iteration if `groups` are only some of them, here and in `learn`. Values that
   * are compared need the same `among` to have the same bits under the same weights. Statistics of the reference
   * include means of Gaussians, and `withMeans` adds them for other weights.
   */
  statistics(
    groups: readonly Group<P, A>[],
    of: WeightsOf,
    among?: readonly Group<P, A>[],
    withMeans?: boolean,
  ): Promise<Statistics[][]>;
  /** An estimate of KL(now || reference) per action, in nats, for reports. */
  divergence(now: Statistics, reference: Statistics): Float64Array;
  /** Adds the gradient of the loss over all groups to the gradient of the next step. */
  learn(trainGroups: readonly TrainGroup<P, A>[], loss: LossSpec, among?: readonly Group<P, A>[]): Promise<LearnReport>;
  /** Sums the gradient over ranks, clips it and updates the weights. The next `learn` starts over. */
  step(learningRate: number): Promise<StepReport>;
  /** Changes with any bit of the weights. Ranks that train together must have the same value. */
  checksum(): Promise<string>;
  /** The files of a checkpoint. They may be views of the weights, so write them before the next step. */
  files(): Promise<CheckpointFiles>;
  /**
   * Called before a checkpoint's folder is removed if the policy stores parts of it remotely. The returned function is
   * called after the removal, with all other checkpoints that may need the same data. Null if there is nothing to
   * delete.
   */
  release?(folder: string): ReleaseCheckpoint | null;
  /**
   * Loads a checkpoint's files in place. Raises CheckpointError for a file that is missing, does not fit or is not
   * finite.
   */
  restore(folder: string, steps: number): Promise<void>;
  dispose(): Promise<void>;
}
