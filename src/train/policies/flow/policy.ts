/** A flow policy computed in this process: sampling, statistics and learning over the same weights, and their optimizer. */
import { must } from '../../../core/errors.js';
import { halvesIn } from '../../../core/half.js';
import { safetensorsPieces } from '../../../core/safetensors.js';
import type { SessionOptions } from '../../../compute/onnx/session.js';
import { soloPeers, type Peers } from '../../../core/group/peers.js';
import { CONFIG_FILE, POLICY_FILE, type CheckpointFiles, type Weights } from '../../../models/files.js';
import { flowConfigJson } from '../../../compute/nets/flow/config.js';
import type { OptimizerSettings } from '../../../config/schema/training.js';
import { ADAPTER_CONFIG_FILE, ipAdapterConfigJson, loraConfigJson } from '../../../models/adapters/files.js';
import type { Policy, SampleRequest, Statistics, WeightsOf } from '../policy.js';
import { LocalPolicy } from '../local_policy.js';
import type { FlowAnswer, FlowRequest, FlowGroup } from './batch.js';
import { flowAdapterLayout, trainedPart, type FlowModel } from './load.js';
import { FlowLearner } from './learner.js';
import { FlowSampler, type FlowSampling } from './sampler.js';

export interface FlowPolicyOptions {
  /** The starting model. Training changes its weights in place. */
  readonly model: FlowModel;
  readonly optimizer: OptimizerSettings;
  /** Scale of the guidance under which answers are sampled in training. Null for none. */
  readonly guidance: number | null;
  readonly session: SessionOptions;
  /** Processes that train together. Default: only this one. */
  readonly peers?: Peers;
  /** Whether to keep the starting weights as the reference for KL. */
  readonly keepReference: boolean;
}

export class FlowPolicy
  extends LocalPolicy<FlowRequest, FlowAnswer>
  implements Policy<FlowRequest, FlowAnswer, FlowSampling>
{
  readonly actions = 'steps';
  protected readonly learner: FlowLearner;
  readonly #sampler: FlowSampler;
  readonly #rank: number;

  constructor(private readonly options: FlowPolicyOptions) {
    const { model, optimizer, guidance, peers = soloPeers, keepReference } = options;
    const { weights, over } = model;
    const trained = trainedPart(model);
    const frozen = new Set([...weights.keys()].filter((name) => !trained.has(name)));
    const session = { ...options.session, frozen, halves: halvesIn(weights) };
    super({
      weights,
      trained,
      reference: keepReference ? withCopies(weights, trained) : null,
      optimizer,
      layout: over === null ? undefined : flowAdapterLayout(over, model.config),
      base: over,
      hiddenStates: false,
      ownLosses: ['nft'],
    });
    this.#rank = peers.rank;
    const microBatch = optimizer.per_device_batch_size;
    this.#sampler = new FlowSampler({ ...model, batch: microBatch, session });
    const gradientCheckpointing = optimizer.gradient_checkpointing;
    this.learner = new FlowLearner(model, this.#sampler, {
      ...{ microBatch, guidance, gradientCheckpointing },
      session,
      peers,
    });
  }

  /** The model it computes with. */
  get model(): FlowModel {
    return this.options.model;
  }

  async sample(request: SampleRequest<FlowRequest, FlowSampling>): Promise<FlowAnswer[][]> {
    const home = this.#rank;
    const answers = await this.#sampler.sample(request, this.weightsOf(request.weights));
    return answers.map((group) => group.map((answer) => ({ ...answer, home })));
  }

  /** Leaves out the images, which the ranks that learn from them receive later. */
  outline(answer: FlowAnswer): FlowAnswer {
    const nothing = new Float32Array(0);
    const actions = answer.actions.map((action) => ({ ...action, x: nothing, drawn: nothing }));
    return { ...answer, actions, latents: nothing };
  }

  /** Statistics of the frozen start include the means, which KL needs. */
  statistics(
    groups: readonly FlowGroup[],
    of: WeightsOf,
    _among?: readonly FlowGroup[],
    withMeans = of === 'reference',
  ): Promise<Statistics[][]> {
    return this.learner.statistics(groups, this.weightsOf(of), withMeans);
  }

  /** mean((m - m_ref)^2) / (2 s^2), the KL of two Gaussians with the same deviation, averaged over the elements like log-probabilities. */
  divergence(now: Statistics): Float64Array {
    return Float64Array.from(must(now.divergence, 'the divergence that learning computed'));
  }

  /** All weights, so that a checkpoint is a model by itself, or only the trained ones with the name of the base. */
  async files(): Promise<CheckpointFiles> {
    const { config, weights, over } = this.model;
    if (over !== null) return { [ADAPTER_CONFIG_FILE]: describe(over), ...this.trained.files() };
    return {
      [CONFIG_FILE]: flowConfigJson(config),
      ...this.trained.files(),
      [POLICY_FILE]: safetensorsPieces(weights),
    };
  }

  async dispose(): Promise<void> {
    await Promise.all([this.#sampler.dispose(), this.learner.dispose()]);
  }
}

function describe(over: NonNullable<FlowModel['over']>): string {
  return over.kind === 'lora' ? loraConfigJson(over.lora, over, null) : ipAdapterConfigJson(over.config, over);
}

/** The same weights, with some replaced by copies. */
function withCopies(weights: Weights, copied: Weights): Weights {
  return new Map(
    [...weights].map(([name, tensor]) => [name, copied.has(name) ? { ...tensor, data: tensor.data.slice() } : tensor]),
  );
}
