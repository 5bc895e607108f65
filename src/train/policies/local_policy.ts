/** The common part of policies that the onnx engine trains in this process, whatever they write. */
import { InternalError } from '../../core/errors.js';
import { TrainedWeights, type WeightsLayout } from '../../models/trained_weights.js';
import type { Weights } from '../../models/files.js';
import type { OptimizerSettings } from '../../config/schema/training.js';
import { recordedBase, rejectOtherBase, type AdapterBase } from '../../models/adapters/files.js';
import type { LossName, LossSpec } from './losses/table.js';
import type { Group, Capabilities, LearnReport, TrainGroup, StepReport, WeightsOf } from './policy.js';

/** Computes gradients, micro-batch by micro-batch. */
interface Learner<P, A> {
  learn(trainGroups: readonly TrainGroup<P, A>[], loss: LossSpec, among?: readonly Group<P, A>[]): Promise<LearnReport>;
  gradients(): Promise<Map<string, Float32Array>>;
}

export interface LocalPolicyOptions {
  /** All weights, changed in place. */
  readonly weights: Weights;
  /** The weights that train. */
  readonly trained: Weights;
  /** All weights of the frozen start. Null if it is not kept. */
  readonly reference: Weights | null;
  readonly optimizer: OptimizerSettings;
  /** The file layout in a checkpoint of what trains. */
  readonly layout: WeightsLayout | undefined;
  /** The adapter's base. Null if no adapter is trained. */
  readonly base: AdapterBase | null;
  readonly hiddenStates: boolean;
  /** Losses that it has besides those of every policy. */
  readonly ownLosses?: readonly LossName[];
}

export abstract class LocalPolicy<P, A> {
  readonly capabilities: Capabilities;
  protected readonly trained: TrainedWeights;
  protected abstract readonly learner: Learner<P, A>;

  constructor(private readonly held: LocalPolicyOptions) {
    const { trained, optimizer, layout, reference, hiddenStates, ownLosses = [] } = held;
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
    const { base } = this.held;
    if (base !== null) rejectOtherBase(folder, recordedBase(folder), base.baseDigest);
    this.trained.restore(folder, steps);
  }

  /** All weights of one kind. Those that training never changes are the model's own. */
  protected weightsOf(of: WeightsOf): Weights {
    const { weights, reference } = this.held;
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
