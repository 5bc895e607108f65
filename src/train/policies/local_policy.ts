/** Code that all policies share that the ONNX engine trains in this process. */
import { InternalError } from '../../core/errors.js';
import { TrainedWeights, type WeightsLayout } from '../../models/trained_weights.js';
import type { Weights } from '../../models/files.js';
import type { OptimizerSettings } from '../../config/schema/training.js';
import { recordedBase, rejectOtherBase, type AdapterBase } from '../../models/adapters/files.js';
import type { LossName, LossSpec } from './losses/table.js';
import type { Group, Capabilities, LearnReport, TrainGroup, StepReport, WeightsOf } from './policy.js';

/** Computes gradients micro-batch by micro-batch. */
interface Learner<P, A> {
  learn(trainGroups: readonly TrainGroup<P, A>[], loss: LossSpec, among?: readonly Group<P, A>[]): Promise<LearnReport>;
  gradients(): Promise<Map<string, Float32Array>>;
}

export interface LocalPolicyOptions {
  /** All weights. Training changes them in place. */
  readonly weights: Weights;
  /** The trained weights. */
  readonly trained: Weights;
  /** All starting weights. Null if they are not kept. */
  readonly reference: Weights | null;
  readonly optimizer: OptimizerSettings;
  /** File layout of the trained weights in a checkpoint. */
  readonly layout: WeightsLayout | undefined;
  /** The adapter's base. Null without an adapter. */
  readonly base: AdapterBase | null;
  readonly hiddenStates: boolean;
  /** Losses that it supports in addition to those of every policy. */
  readonly ownLosses?: readonly LossName[];
}

export abstract class LocalPolicy<P, A> {
  readonly capabilities: Capabilities;
  protected readonly trained: TrainedWeights;
  protected abstract readonly learner: Learner<P, A>;

  constructor(private readonly parts: LocalPolicyOptions) {
    const { trained, optimizer, layout, reference, hiddenStates, ownLosses = [] } = parts;
    this.trained = new TrainedWeights(trained, optimizer, layout);
    this.capabilities = {
      losses: ['likelihood', 'reinforce', 'ratio', 'cispo', ...ownLosses],
      reference: reference !== null,
      average: this.trained.averages !== null,
      hiddenStates,
    };
  }

  get steps(): number {
    return this.trained.steps;
  }

  learn(
    trainGroups: readonly TrainGroup<P, A>[],
    loss: LossSpec,
    among?: readonly Group<P, A>[],
  ): Promise<LearnReport> {
    return this.learner.learn(trainGroups, loss, among);
  }

  async step(learningRate: number): Promise<StepReport> {
    return this.trained.step(await this.learner.gradients(), learningRate);
  }

  async checksum(): Promise<string> {
    return this.trained.checksum();
  }

  /** Raises CheckpointError when the checkpoint was trained over another base. */
  async restore(folder: string, steps: number): Promise<void> {
    const { base } = this.parts;
    if (base !== null) rejectOtherBase(folder, recordedBase(folder), base.baseDigest);
    this.trained.restore(folder, steps);
  }

  /** All weights of one kind. Weights that training never changes are the model's own. */
  protected weightsOf(of: WeightsOf): Weights {
    const { weights, reference } = this.parts;
    const { averages } = this.trained;
    const all = {
      current: weights,
      average: averages === null ? null : new Map([...weights, ...averages]),
      reference,
    };
    const found = all[of];
    if (found === null) throw new InternalError(`this policy keeps no ${of} of its weights`);
    return found;
  }
}
