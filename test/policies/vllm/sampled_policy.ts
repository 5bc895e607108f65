/** A small policy with an adapter whose answers a stand-in of vLLM samples. */
import { join } from 'node:path';
import { systemClock, type Clock } from '../../../src/core/clock.js';
import { Deadline } from '../../../src/core/deadline.js';
import { VllmClient } from '../../../src/engines/vllm/client.js';
import type { LogProbsMode } from '../../../src/engines/vllm/probe.js';
import { soloGroup } from '../../../src/group/process_group.js';
import type { TokenAnswer, TokenPrompt, TokenRequest } from '../../../src/policies/tokens/batch.js';
import { unrestricted, type TokenFormat } from '../../../src/policies/tokens/format.js';
import type { TokenLesson } from '../../../src/policies/tokens/learner.js';
import { loadPolicy } from '../../../src/policies/tokens/load.js';
import { TokenPolicy, type TokenPolicyOptions } from '../../../src/policies/tokens/policy.js';
import { AdapterShelf, type AdapterShelfOptions } from '../../../src/policies/tokens/vllm/adapters.js';
import { VllmSampler, type SampledAnswer, type VllmSamplerOptions } from '../../../src/policies/tokens/vllm/sampler.js';
import { smallConfig } from '../../engines/vllm/small_base.js';
import type { StubVllm } from '../../engines/vllm/stub_vllm.js';

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

export interface SampledOptions {
  readonly base: string;
  /** Where adapters are written. */
  readonly folder: string;
  readonly mode?: LogProbsMode;
  readonly temperature?: number;
  readonly clock?: Clock;
  readonly client?: VllmClient;
  readonly sampler?: Partial<VllmSamplerOptions>;
  readonly shelf?: Partial<AdapterShelfOptions>;
  readonly policy?: Partial<TokenPolicyOptions>;
}

export function policyOn(base: string, temperature = 1, more: Partial<TokenPolicyOptions> = {}): TokenPolicy {
  const lora = { rank: 2, alpha: 4, rslora: false, targets: 'all-linear' };
  const session = { threads: 1 };
  return new TokenPolicy<TokenPrompt>({
    model: loadPolicy(base, format, { lora, seed: 5 }),
    optimizer: {
      learning_rate: 0.01,
      betas: [0.9, 0.999],
      eps: 1e-8,
      weight_decay: 0,
      max_grad_norm: 1,
      per_device_batch_size: 4,
      schedule: 'constant',
      decay_steps: null,
      min_learning_rate_ratio: 0,
      gradient_checkpointing: false,
      ema_decay: null,
    },
    contextSize: 16,
    constrained: false,
    separateVocabularies: false,
    learner: { temperature, microBatch: 4, gradientCheckpointing: false },
    sessions: { sampling: session, learning: session },
    keepReference: true,
    ...more,
  });
}

export function sampledPolicy(stub: Pick<StubVllm, 'url'>, options: SampledOptions) {
  const { base, folder, temperature = 1, clock = systemClock } = options;
  const client = options.client ?? new VllmClient({ url: stub.url, concurrency: 8, timeoutMs: 60_000, clock });
  const prefix = 'editrl-test-';
  const adapters = new AdapterShelf({ client, folder, seenAs: folder, prefix, rank: 2, ...options.shelf });
  const store = new MemoryAnswers();
  const elsewhere = new VllmSampler({
    client,
    adapters,
    prefix,
    format,
    vocabulary: smallConfig.vocab_size,
    contextSize: 16,
    separateVocabularies: false,
    mode: options.mode ?? 'processed',
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
  const policy = policyOn(base, temperature, options.policy);
  policy.sampleRemotely(elsewhere);
  return { policy, store, adapters, elsewhere, folderOf: (name: string) => join(folder, name) };
}

/** Something to be learnt that changes every weight of the adapter. */
export async function learn(policy: TokenPolicy): Promise<void> {
  const lessons: TokenLesson[] = [1, 2].map((p) => ({
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
    await policy.step(0.1);
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
