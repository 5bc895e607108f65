/**
 * The contract between training and every policy. Gradients and optimizer state stand below it, so that a remote trainer is one more
 * implementation. `P` is a prompt as the policy reads it, `A` its answer, `H` how it is to sample (temperature, steps of a solver, …).
 * Every rank of a run calls the same of these in the same order.
 */
import type { RandomStream } from '../core/random.js';
import type { CheckpointFiles } from '../models/files.js';
import type { LossName, LossSpec } from './losses/table.js';

/** What training has to know of an answer. Its actions are tokens, or the steps of a solver. */
export interface Answer {
  /** Log-probability of each action when it was sampled; all NaN if the sampler did not report it. */
  readonly logProbs: Float32Array;
  /** Whether it ended by itself instead of by a limit. */
  readonly finished: boolean;
}

/** A prompt with answers to it. */
export interface Answered<P, A> {
  readonly prompt: P;
  readonly answers: readonly A[];
}

/** What a policy says of an answer's actions under some weights; arrays run over the actions. */
export interface Statistics {
  readonly logProbs: Float32Array;
  /** In nats; absent where it is no function of the action's distribution that is computed anyway. */
  readonly entropy?: Float32Array;
  /**
   * Where an action is drawn from a Gaussian: its mean, a row of numbers per action, empty on ranks that have the answer's outline alone. Then KL
   * is that of two Gaussians of one deviation, and the reference has to say it.
   */
  readonly means?: readonly Float32Array[];
  /** Per action, in nats: KL to the reference, where learning has computed it on the way. */
  readonly divergence?: Float32Array;
}

/** One advantage for every action of an answer: a single number where all have the same, so that a long answer takes no memory for it. */
export type Advantages = number | Float32Array;

/** What is to be learnt from one answer; arrays run over its actions. */
export interface Target {
  /** What each action counts; 0 leaves it out. They hold the loss's divisor. */
  readonly weights: Float32Array;
  readonly advantages: Advantages;
  /** Under the frozen start; null where the loss has no KL term. */
  readonly reference: Statistics | null;
  /** Under the weights that sampled; null where the loss has no ratio. */
  readonly old: Statistics | null;
}

/** Answers to one prompt with what is to be learnt from them. */
export interface Lesson<P, A> extends Answered<P, A> {
  readonly targets: readonly Target[];
}

export interface LearnReport {
  /** Summed over all ranks. */
  readonly loss: number;
  /** Statistics under the weights that the gradient was taken at, for each lesson and answer. */
  readonly statistics: readonly (readonly Statistics[])[];
  /** Actions whose KL term was too large to be taken as it is. */
  readonly klClamped: number;
}

export interface StepReport {
  /** Before clipping; null where a remote trainer does not tell. */
  readonly gradNorm: number | null;
  /** False when the gradient was not finite: then nothing was changed. */
  readonly applied: boolean;
}

/** What a policy can do beyond what every one must. A run that needs more is refused when it opens. */
export interface Capabilities {
  readonly losses: readonly LossName[];
  /** Whether it keeps its starting weights, so that a loss may add the distance to them. */
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
   * All prompts of the iteration or of the held-out set that these are some of. What follows from their sizes is the same whatever the
   * chunks and the processes.
   */
  readonly among: readonly P[];
  readonly answersPerPrompt: number;
  readonly how: H;
  readonly weights: Exclude<WeightsOf, 'reference'>;
  /** The stream of one answer; `prompt` counts within `prompts`. */
  readonly random: (prompt: number, answer: number) => RandomStream;
  /** The name of one answer's episode, by which what was sampled elsewhere is kept; absent where nothing is. */
  readonly key?: (prompt: number, answer: number) => string;
}

export interface Policy<P, A extends Answer, H> {
  readonly capabilities: Capabilities;
  /** What the actions of its answers are: tokens, or the noisy steps of a picture. */
  readonly actions: 'tokens' | 'steps';
  /** Optimizer steps taken so far. A step that rejected counts unless it is certain that it changed nothing. */
  readonly steps: number;
  /** Called on every rank before answers are sampled under these weights: brings them to whoever samples elsewhere. */
  publish?(weights: Exclude<WeightsOf, 'reference'>): Promise<void>;
  /** Called on every rank when its answers were sampled, before anything is learnt from them: what was sampled elsewhere is kept. */
  keep?(): Promise<void>;
  /** `answersPerPrompt` answers to each prompt, drawn on this rank alone. */
  sample(request: SampleRequest<P, H>): Promise<A[][]>;
  /** The part of an answer that other ranks receive, which did not sample it; absent: all of it. */
  outline?(answer: A): A;
  /**
   * Statistics of all groups, on every rank. `among`, here and in learning, is all groups of the iteration that these belong to, if these are not all
   * of them. Values that are compared with each other need the same `among` to have the same bits under the same weights.
   */
  statistics(
    groups: readonly Answered<P, A>[],
    of: WeightsOf,
    among?: readonly Answered<P, A>[],
  ): Promise<Statistics[][]>;
  /** Per action, in nats: an estimate of KL(now || reference) for people to look at. */
  divergence(now: Statistics, reference: Statistics): Float64Array;
  /** Adds the gradient of the loss over all lessons to what the next step takes. */
  learn(lessons: readonly Lesson<P, A>[], loss: LossSpec, among?: readonly Answered<P, A>[]): Promise<LearnReport>;
  /** Sums the gradient over ranks, clips it and updates the weights; the next `learn` begins anew. */
  step(learningRate: number): Promise<StepReport>;
  /** Differs where weights differ in a bit. Ranks that train together must agree on it. */
  checksum(): Promise<string>;
  /** The files of a checkpoint. They may be views of the weights, to be written before the next step. */
  files(): Promise<CheckpointFiles>;
  /** Takes over a checkpoint's files, in place. Raises CheckpointError where one is missing, does not fit or is not finite. */
  restore(folder: string, steps: number): Promise<void>;
  dispose(): Promise<void>;
}
