/** A token policy in this process: sampling, statistics and learning with the same weights, and their optimizer. */
import { InternalError } from '../../../core/errors.js';
import { halvesIn } from '../../../core/half.js';
import type { SessionOptions } from '../../../compute/onnx/session.js';
import { ownLayout } from '../../../models/trained_weights.js';
import { soloPeers, type Peers } from '../../../core/group/peers.js';
import { CONFIG_FILE, GENERATION_FILE, type CheckpointFiles, type Weights } from '../../../models/files.js';
import type { OptimizerSettings } from '../../../config/schema/training.js';
import type { SampleRequest, Statistics, WeightsOf } from '../policy.js';
import { LocalPolicy } from '../local_policy.js';
import type { TokenAnswer, TokenRequest, TokenGroup } from './batch.js';
import type { TokenPrompt } from '../../../models/tokenizer/format.js';
import { Learner, type LearnerOptions } from './learner.js';
import { ADAPTER_CONFIG_FILE, adapterLayout, loraConfigJson } from '../../../models/adapters/files.js';
import { isAdapted, peftNames, referenceWeights, type AdaptedModel } from '../../../models/adapters/decoder.js';
import { openVisionTower, type VisionTower } from './vision_tower.js';
import { Reader, type HiddenStates, type StatesRequest } from './hidden_states.js';
import { estimatedDivergence, type LanguagePolicy, type RemoteSampler } from './language_policy.js';
import { frozenWeights, trainedWeights, type PolicyModel } from '../../../models/adapters/policy_model.js';
import { Sampler, type SamplerOptions } from './rollout.js';
import type { TokenSampling } from './sampling.js';
import { safetensorsPieces } from '../../../core/safetensors.js';

export interface TokenPolicyOptions<P extends TokenPrompt = TokenPrompt> extends Omit<SamplerOptions, 'session'> {
  /** The starting model. Training changes its weights in place. */
  readonly model: PolicyModel<P>;
  readonly optimizer: OptimizerSettings;
  readonly learner: Pick<LearnerOptions, 'temperature' | 'microBatch' | 'gradientCheckpointing'>;
  readonly sessions: { readonly sampling: SessionOptions; readonly learning: SessionOptions };
  /** Processes that train together. Default: only this one. */
  readonly peers?: Peers;
  /** Whether to keep the starting weights as the KL reference: a copy, or the model without its adapter. */
  readonly keepReference: boolean;
}

export class TokenPolicy<P extends TokenPrompt = TokenPrompt>
  extends LocalPolicy<TokenRequest, Pick<TokenAnswer, 'ids'>>
  implements LanguagePolicy<P>
{
  readonly actions = 'tokens';
  protected readonly learner: Learner;
  readonly #sampler: Sampler<P>;
  readonly #visionTower: VisionTower | null;
  readonly #reader: Reader;
  #remote: RemoteSampler<P> | null = null;
  /** The kind of weights that the remote sampler has. */
  #published: SampleRequest<never, never>['weights'] | null = null;

  constructor(readonly options: TokenPolicyOptions<P>) {
    const { model, optimizer, learner, peers = soloPeers, separateVocabularies, keepReference } = options;
    const held = { frozen: new Set(frozenWeights(model).keys()), halves: halvesIn(model.weights) };
    const sessions = {
      sampling: { ...options.sessions.sampling, ...held },
      learning: { ...options.sessions.learning, ...held },
    };
    super({
      weights: model.weights,
      trained: trainedWeights(model),
      reference: keepReference ? referenceWeights(model) : null,
      optimizer,
      layout: isAdapted(model)
        ? adapterLayout(model.adapter, 'lora', peftNames(model))
        : { ...ownLayout, beside: new Map([...frozenWeights(model), ...(model.unread ?? [])]) },
      base: isAdapted(model) ? model.adapter : null,
      hiddenStates: true,
    });
    // All readers share the frozen parts' output for an image.
    this.#visionTower = openVisionTower(model, sessions.learning);
    const visionTower = this.#visionTower;
    this.#reader = new Reader(model, { session: sessions.learning, visionTower });
    this.#sampler = new Sampler(model, { ...options, session: sessions.sampling, visionTower });
    this.learner = new Learner(model, {
      ...learner,
      separateVocabularies,
      session: sessions.learning,
      peers,
      visionTower,
    });
  }

  /** The model of the policy. */
  get model(): PolicyModel<P> {
    return this.options.model;
  }

  /** Replaces this process's own sampling engine. The policy disposes of the sampler. */
  sampleRemotely(sampler: RemoteSampler<P>): void {
    this.#remote = sampler;
  }

  async publish(of: SampleRequest<never, never>['weights']): Promise<void> {
    const { model } = this.options;
    const remote = this.#remote;
    if (remote === null) return;
    const weights = { current: this.trained.weights, average: this.trained.averages }[of];
    if (weights === null) throw new InternalError(`this policy keeps no ${of} of its weights`);
    const files = isAdapted(model) ? () => adapterFolder(model, weights) : () => wholeFolder(model, weights);
    await remote.publish({ steps: this.steps, of, files });
    this.#published = of;
  }

  async keep(): Promise<void> {
    await this.#remote?.keep();
  }

  sample(request: SampleRequest<TokenRequest<P>, TokenSampling>): Promise<TokenAnswer[][]> {
    const remote = this.#remote;
    if (remote !== null) {
      if (this.#published !== request.weights) {
        throw new InternalError(`the ${request.weights} weights are not published`);
      }
      return remote.sample(request);
    }
    const { weights: of } = request;
    return this.#sampler.sample(request, this.weightsOf(of), `${of} ${this.trained.version}`);
  }

  statistics(groups: readonly TokenGroup[], of: WeightsOf, among?: readonly TokenGroup[]): Promise<Statistics[][]> {
    return this.learner.statistics(groups, this.weightsOf(of), among);
  }

  divergence(now: Statistics, reference: Statistics): Float64Array {
    return estimatedDivergence(now, reference);
  }

  /** Hidden states of prompts and their answers. See hidden_states.ts. */
  read(items: readonly StatesRequest[], of: WeightsOf): Promise<HiddenStates[]> {
    return this.#reader.read(items, this.weightsOf(of));
  }

  async files(): Promise<CheckpointFiles> {
    const { model } = this.options;
    const { config, format } = model;
    return {
      ...(isAdapted(model)
        ? { [ADAPTER_CONFIG_FILE]: loraConfigJson(model.adapter.lora, model.adapter, 'CAUSAL_LM') }
        : { [CONFIG_FILE]: model.description ?? `${JSON.stringify(config, null, 2)}\n` }),
      ...format.tokenizerFiles,
      ...model.files,
      [GENERATION_FILE]: `${JSON.stringify({ eos_token_id: [...format.ends] })}\n`,
      ...this.trained.files(),
    };
  }

  async dispose(): Promise<void> {
    await Promise.all([
      this.#sampler.dispose(),
      this.learner.dispose(),
      this.#reader.dispose(),
      this.#remote?.dispose(),
    ]);
    await this.#visionTower?.dispose();
  }
}

const WHOLE_FILE = 'model.safetensors';

/**
 * A file with all weights of a model, under transformers' names. `weights` are the trained ones. The server keeps its own
 * config.json.
 */
export function wholeFolder(model: PolicyModel, weights: Weights): CheckpointFiles {
  const nameOf = peftNames(model);
  const all = [...new Map([...model.weights, ...weights])].map(([name, tensor]) => [nameOf(name), tensor] as const);
  return { [WHOLE_FILE]: safetensorsPieces(new Map(all), { format: 'pt' }) };
}

/**
 * The folder of an adapter with these weights. Layers are listed by name, because vLLM supports neither `all-linear`
 * nor patterns.
 */
export function adapterFolder(model: AdaptedModel, weights: Weights): CheckpointFiles {
  // vLLM reads Qwen3-VL under no other names than those of transformers.
  const { file, stored, metadata } = adapterLayout(model.adapter, 'lora', peftNames(model));
  const layers = [...model.config.adapter.layers].map((name) => name.slice(name.lastIndexOf('.') + 1));
  const config = {
    ...(JSON.parse(loraConfigJson(model.adapter.lora, model.adapter, 'CAUSAL_LM')) as object),
    target_modules: [...new Set(layers)].sort(),
  };
  return {
    [ADAPTER_CONFIG_FILE]: `${JSON.stringify(config, null, 2)}\n`,
    [file]: safetensorsPieces(new Map([...weights].map(([name, tensor]) => [stored(name), tensor])), metadata),
  };
}
