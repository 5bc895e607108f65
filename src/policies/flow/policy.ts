/** A flow policy that is computed in this process: sampling, statistics and learning over the same weights, and their optimizer. */
import { InternalError, must } from '../../core/errors.js';
import { safetensorsPieces } from '../../core/safetensors.js';
import type { SessionOptions } from '../../engines/onnx/session.js';
import { TrainedWeights } from '../../engines/onnx/trained_weights.js';
import { alone, type Peers } from '../../group/peers.js';
import { CONFIG_FILE, POLICY_FILE, type CheckpointFiles, type Weights } from '../../models/files.js';
import { flowConfigJson } from '../../nets/flow/config.js';
import type { OptimizerSettings } from '../../schema/training.js';
import {
  ADAPTER_CONFIG_FILE,
  ipAdapterConfigJson,
  loraConfigJson,
  recordedBase,
  refuseOtherBase,
} from '../adapter_files.js';
import type { LossSpec } from '../losses/table.js';
import type { Capabilities, LearnReport, Policy, SampleRequest, Statistics, StepReport, WeightsOf } from '../policy.js';
import type { FlowAnswer, FlowAsked, FlowGroup } from './batch.js';
import { flowAdapterLayout } from './load.js';
import { FlowLearner, type FlowLesson } from './learner.js';
import { trainedPart, type FlowModel } from './model.js';
import { FlowSampler, type FlowSampling } from './sampler.js';

export interface FlowPolicyOptions {
  /** What training starts from; its weights are changed in place. */
  readonly model: FlowModel;
  readonly optimizer: OptimizerSettings;
  /** Scale of the guidance under which answers are sampled in training; null for none. */
  readonly guidance: number | null;
  readonly session: SessionOptions;
  /** Processes that train together. Default: this one alone. */
  readonly peers?: Peers;
  /** Whether the starting weights are kept, as what KL is measured to. */
  readonly keepReference: boolean;
}

export class FlowPolicy implements Policy<FlowAsked, FlowAnswer, FlowSampling> {
  readonly capabilities: Capabilities;
  readonly actions = 'steps';
  readonly #sampler: FlowSampler;
  readonly #learner: FlowLearner;
  readonly #trained: TrainedWeights;
  /** All weights of the frozen start; those that nothing changes are the model's own. */
  readonly #reference: Weights | null;
  readonly #rank: number;

  constructor(private readonly options: FlowPolicyOptions) {
    const { model, optimizer, guidance, session, peers = alone, keepReference } = options;
    const trained = trainedPart(model);
    const { over } = model;
    this.#rank = peers.rank;
    this.#trained = new TrainedWeights(
      trained,
      optimizer,
      over === null ? undefined : flowAdapterLayout(over, model.config),
    );
    this.#reference = keepReference ? withCopies(model.weights, trained) : null;
    const microBatch = optimizer.per_device_batch_size;
    this.#sampler = new FlowSampler({ ...model, batch: microBatch, session });
    this.#learner = new FlowLearner(model, this.#sampler, { microBatch, guidance, session, peers });
    this.capabilities = {
      losses: ['likelihood', 'reinforce', 'ratio'],
      reference: keepReference,
      average: this.#trained.averages !== null,
      hiddenStates: false,
    };
  }

  /** What it computes with. */
  get model(): FlowModel {
    return this.options.model;
  }

  get steps(): number {
    return this.#trained.steps;
  }

  async sample(request: SampleRequest<FlowAsked, FlowSampling>): Promise<FlowAnswer[][]> {
    const home = this.#rank;
    const answers = await this.#sampler.sample(request, this.#weights(request.weights));
    return answers.map((group) => group.map((answer) => ({ ...answer, home })));
  }

  /** Without its pictures, which go to the ranks that learn from them and when they do. */
  outline(answer: FlowAnswer): FlowAnswer {
    const nothing = new Float32Array(0);
    const actions = answer.actions.map((action) => ({ ...action, x: nothing, drawn: nothing }));
    return { ...answer, actions, latents: nothing };
  }

  /** Of the frozen start with the means that KL is taken of. */
  statistics(groups: readonly FlowGroup[], of: WeightsOf): Promise<Statistics[][]> {
    return this.#learner.statistics(groups, this.#weights(of), of === 'reference');
  }

  /** mean((m - m_ref)^2) / (2 s^2), the KL of two Gaussians of one deviation, averaged over the elements as log-probabilities are. */
  divergence(now: Statistics): Float64Array {
    return Float64Array.from(must(now.divergence, 'the divergence that learning computed'));
  }

  learn(lessons: readonly FlowLesson[], loss: LossSpec): Promise<LearnReport> {
    return this.#learner.learn(lessons, loss);
  }

  async step(learningRate: number): Promise<StepReport> {
    return this.#trained.step(await this.#learner.gradients(), learningRate);
  }

  async checksum(): Promise<string> {
    return this.#trained.checksum();
  }

  /** All weights, so that a checkpoint is a model by itself; or what is trained over a base that it names. */
  async files(): Promise<CheckpointFiles> {
    const { config, weights, over } = this.model;
    if (over !== null) return { [ADAPTER_CONFIG_FILE]: describe(over), ...this.#trained.files() };
    return {
      [CONFIG_FILE]: flowConfigJson(config),
      ...this.#trained.files(),
      [POLICY_FILE]: safetensorsPieces(weights),
    };
  }

  /** Raises CheckpointError where it was trained over another base. */
  async restore(folder: string, steps: number): Promise<void> {
    const { over } = this.model;
    if (over !== null) refuseOtherBase(folder, recordedBase(folder), over.baseDigest);
    this.#trained.restore(folder, steps);
  }

  async dispose(): Promise<void> {
    await Promise.all([this.#sampler.dispose(), this.#learner.dispose()]);
  }

  #weights(of: WeightsOf): Weights {
    const { model } = this.options;
    const { averages } = this.#trained;
    const all = {
      current: model.weights,
      average: averages === null ? null : new Map([...model.weights, ...averages]),
      reference: this.#reference,
    };
    const weights = all[of];
    if (weights === null) throw new InternalError(`this policy keeps no ${of} of its weights`);
    return weights;
  }
}

function describe(over: NonNullable<FlowModel['over']>): string {
  return over.kind === 'lora' ? loraConfigJson(over.lora, over, null) : ipAdapterConfigJson(over.config, over);
}

/** The same weights, of which some are copies. */
function withCopies(weights: Weights, copied: Weights): Weights {
  return new Map(
    [...weights].map(([name, tensor]) => [name, copied.has(name) ? { ...tensor, data: tensor.data.slice() } : tensor]),
  );
}
