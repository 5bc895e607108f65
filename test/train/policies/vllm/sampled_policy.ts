/** A small policy, with an adapter or trained whole, whose answers a stand-in of vLLM samples. */
import { type Clock, Deadline, systemClock } from '../../../../src/core/clock.js';
import { VllmClient, type LogProbsMode } from '../../../../src/train/policies/vllm/client.js';
import { soloGroup } from '../../../../src/core/group/process_group.js';
import type { TokenAnswer, TokenRequest } from '../../../../src/train/policies/tokens/batch.js';
import type { TokenPrompt } from '../../../../src/models/tokenizer/format.js';
import { unrestricted, type TokenFormat } from '../../../../src/models/tokenizer/format.js';
import type { TokenTrainGroup } from '../../../../src/train/policies/tokens/learner.js';
import { loadPolicy } from '../../../../src/train/policies/tokens/load.js';
import type { TokenPolicy, TokenPolicyOptions } from '../../../../src/train/policies/tokens/policy.js';
import {
  AdapterLoader,
  type AdapterLoaderOptions,
  ModelLoader,
} from '../../../../src/train/policies/vllm/weights_loader.js';
import {
  VllmSampler,
  type SampledAnswer,
  type VllmSamplerOptions,
} from '../../../../src/train/policies/vllm/sampler.js';
import { optimizer, tokenPolicy } from '../small_lesson.js';
import { smallConfig } from './small_base.js';
import { everything, eyes, seeingFormat, words } from './seeing_base.js';
import type { StubRequest, StubVllm } from './stub_vllm.js';

export const END = 2;
export const format: TokenFormat = {
  size: smallConfig.vocab_size,
  ends: new Set([END]),
  secondPart: null,
  tokenizerFiles: {},
  start: () => unrestricted,
};

/** Answers in memory. */
export class MemoryAnswers {
  readonly all = new Map<string, SampledAnswer>();
  find(key: string, hash: string): SampledAnswer | undefined {
    return this.all.get(`${key} ${hash}`);
  }
  put(answer: SampledAnswer): void {
    this.all.set(`${answer.key} ${answer.requestHash}`, answer);
  }
}

export type Trains = 'adapter' | 'whole';

/** How a server is asked and told, for each of them. */
export interface Wire {
  readonly answers: string;
  readonly loads: string;
  /** The names of all weights that the server has beside those that it was started with. */
  readonly served: (stub: StubVllm) => readonly string[];
  /** What a server that is started again has forgotten. */
  readonly restart: (stub: StubVllm) => void;
  readonly seed: (body: StubRequest['body']) => unknown;
}

export const wires: Readonly<Record<Trains, Wire>> = {
  adapter: {
    answers: '/v1/completions',
    loads: '/v1/load_lora_adapter',
    served: ({ adapters }) => [...adapters.keys()],
    restart: ({ adapters }) => adapters.clear(),
    seed: (body) => body['seed'],
  },
  whole: {
    answers: '/inference/v1/generate',
    loads: '/collective_rpc',
    served: ({ weights: { version } }) => (version === 'default' ? [] : [version]),
    restart: ({ weights }) => weights.restart(),
    seed: (body) => (body['sampling_params'] as { seed: unknown }).seed,
  },
};

export interface SampledOptions {
  readonly base: string;
  /** What is trained; default: an adapter. */
  readonly trains?: Trains;
  /** Whether the model is the one that sees. */
  readonly sees?: boolean;
  /** Where weights are written. */
  readonly folder: string;
  readonly mode?: LogProbsMode;
  readonly temperature?: number;
  readonly clock?: Clock;
  readonly client?: VllmClient;
  readonly sampler?: Partial<VllmSamplerOptions>;
  readonly loader?: Partial<AdapterLoaderOptions>;
  readonly policy?: Partial<TokenPolicyOptions>;
}

export function policyOn(
  base: string,
  temperature = 1,
  more: Partial<TokenPolicyOptions> = {},
  { trains = 'adapter', sees = false }: Pick<SampledOptions, 'trains' | 'sees'> = {},
): TokenPolicy {
  const lora = { rank: 2, alpha: 4, rslora: false, targets: 'all-linear' };
  const fresh = trains === 'adapter' ? { lora, seed: 5 } : null;
  const model = sees
    ? loadPolicy(base, seeingFormat, fresh, trains === 'adapter' ? words : everything)
    : loadPolicy(base, format, fresh);
  return tokenPolicy<TokenPrompt>(model, {
    optimizer: { ...optimizer, per_device_batch_size: 4 },
    contextSize: sees ? 128 : 16,
    learner: { temperature, microBatch: 4, gradientCheckpointing: false },
    ...more,
  });
}

export function sampledPolicy(stub: Pick<StubVllm, 'url'>, options: SampledOptions) {
  const { base, folder, trains = 'adapter', sees = false, temperature = 1, clock = systemClock } = options;
  const client = options.client ?? new VllmClient({ url: stub.url, concurrency: 8, timeoutMs: 60_000, clock });
  const place = { client, folder, seenAs: folder, prefix: 'editrl-test-' };
  const loader =
    trains === 'adapter'
      ? new AdapterLoader({ ...place, own: 'editrl-test-', rank: 2, ...options.loader })
      : new ModelLoader({ ...place, model: base, ...options.loader });
  const store = new MemoryAnswers();
  const elsewhere = new VllmSampler({
    client,
    loader,
    format: sees ? seeingFormat : format,
    vocabulary: sees ? seeingFormat.size : smallConfig.vocab_size,
    contextSize: sees ? 128 : 16,
    separateVocabularies: false,
    mode: options.mode ?? 'processed',
    constrained: false,
    vision: sees ? eyes : null,
    store,
    keep: async () => undefined,
    group: soloGroup(),
    concurrency: 8,
    maxWaitMs: 60_000,
    stop: new AbortController().signal,
    close: () => client.close(),
    clock,
    ...options.sampler,
  });
  const policy = policyOn(base, temperature, options.policy, options);
  policy.sampleRemotely(elsewhere);
  return { policy, store, loader, elsewhere };
}

/** Something to be learnt that changes every weight that trains. */
export async function learn(policy: TokenPolicy, learningRate = 0.1): Promise<void> {
  const lessons: TokenTrainGroup[] = [1, 2].map((p) => ({
    prompt: { tokens: { ids: [p, p + 3] } },
    answers: [{ ids: Int32Array.of(4, 5, 6) }, { ids: Int32Array.of(7, 1, END) }],
    targets: [1, -1].map((advantages) => ({
      weights: new Float32Array(3).fill(0.1),
      advantages,
      reference: null,
      old: null,
    })),
  }));
  for (let i = 0; i < 3; i++) {
    await policy.learn(lessons, { policy: 'reinforce', kl: null });
    await policy.step(learningRate);
  }
}

export const brief = (clock: Clock = systemClock): Deadline => new Deadline(clock, 60_000);

/** The largest difference between what the sampler told of its tokens and what the trainer computes under its present weights. */
export async function largestMismatch(
  policy: TokenPolicy,
  prompts: readonly TokenRequest<TokenPrompt>[],
  answers: readonly TokenAnswer[][],
): Promise<number> {
  const asked = prompts.map((prompt, p) => ({ prompt, answers: answers[p] }));
  const statistics = await policy.statistics(asked, 'current');
  return Math.max(
    ...answers.flatMap((group, p) =>
      group.flatMap(({ logProbs }, g) => [...logProbs].map((x, t) => Math.abs(x - statistics[p][g].logProbs[t]))),
    ),
  );
}
