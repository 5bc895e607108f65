/** Policies that a stand-in of a training server trains. */
import { type Clock, Deadline, systemClock } from '../../../../src/core/clock.js';
import { TinkerConnection } from '../../../../src/train/policies/tinker/connection.js';
import { TinkerSession, type Dialect } from '../../../../src/train/policies/tinker/session.js';
import type { TokenPrompt } from '../../../../src/models/tokenizer/format.js';
import { plainProcessor } from '../../../../src/models/images/processor.js';
import { PromptChunks, type ImageInputs } from '../../../../src/train/policies/tinker/prompts.js';
import { RandomStream } from '../../../../src/core/random.js';
import { unrestricted, type TokenFormat } from '../../../../src/models/tokenizer/format.js';
import { TinkerPolicy } from '../../../../src/train/policies/tinker/policy.js';
import { TinkerService, type Reduction } from '../../../../src/train/policies/tinker/served.js';
import type { SampledAnswer } from '../../../../src/train/policies/vllm/sampler.js';
import { optimizer } from '../../../../src/config/schema/training.js';
import { fastClock } from '../../../rewards/judge/stub_judge.js';
import type { StubTinker } from './stub_tinker.js';

export const VOCABULARY = 12;
/** The token that ends an answer. */
export const END = 11;

export const format: TokenFormat = {
  size: VOCABULARY,
  ends: new Set([END]),
  secondPart: null,
  tokenizerFiles: {},
  start: () => unrestricted,
};

/** Side in pixels of what becomes one token of an image. */
export const SIDE = 8;
const shown = { min_pixels: SIDE ** 2, max_pixels: 16 * SIDE ** 2 };

/** How a policy of the same vocabulary sees. */
export const sight: ImageInputs = {
  processor: plainProcessor({ patch_size: 4, temporal_patch_size: 2, spatial_merge_size: 2 }, shown),
  tokens: { vision_start_token_id: 7, vision_end_token_id: 8, image_token_id: 9, video_token_id: 10 },
};

/** A prompt with two images, whose content follows from the seed. */
export async function picturedPrompt(seed: number): Promise<{ readonly tokens: TokenPrompt }> {
  const random = new RandomStream('image', seed);
  const frame = {
    width: 2 * SIDE,
    height: SIDE,
    data: Uint8Array.from({ length: 6 * SIDE ** 2 }, () => random.integer(256)),
  };
  const images = await sight.processor.stills(
    [frame, { ...frame, data: frame.data.map((one) => 255 - one) }],
    'a test',
  );
  return { tokens: { ids: [1, 7, 9, 9, 8, 7, 9, 9, 8, 2], images } };
}

export const prompts: readonly { readonly tokens: TokenPrompt }[] = [
  { tokens: { ids: [1, 2, 3] } },
  { tokens: { ids: [4] } },
];
export const how = { temperature: 1, topP: 1, topK: -1, maxTokens: 10, logProbTemperature: 1 };

interface ServedOptions {
  readonly dialect?: Dialect;
  readonly reduction?: Reduction;
  readonly apiKey?: string;
  readonly baseModel?: string;
  readonly rank?: number;
  /** Names of what is saved begin so. */
  readonly prefix?: string;
  readonly stored?: Map<string, SampledAnswer>;
  readonly maxGradNorm?: number | null;
  readonly downloadsAdapter?: boolean;
  /** What is said goes here. */
  readonly notes?: string[];
  readonly eps?: number;
  /** A fast one unless given. */
  readonly clock?: Clock;
  readonly maxWaitMs?: number;
  /** Null unless given. */
  readonly sees?: ImageInputs | null;
}

let attempts = 0;

export function connect(
  stub: Pick<StubTinker, 'url'>,
  apiKey?: string,
  clock: Clock = fastClock(50),
): TinkerConnection {
  return new TinkerConnection({
    url: stub.url,
    apiKey,
    concurrency: 8,
    timeoutMs: 20_000,
    clock,
    random: () => 0.5,
  });
}

export function servedPolicy(
  stub: Pick<StubTinker, 'url'>,
  {
    dialect = 'auto',
    reduction = 'sum',
    apiKey,
    baseModel = 'base',
    rank = 8,
    prefix = `attempt${attempts++}-`,
    stored = new Map(),
    maxGradNorm = null,
    downloadsAdapter = true,
    notes = [],
    eps = 1e-8,
    clock,
    maxWaitMs = 60_000,
    sees = null,
  }: ServedOptions = {},
): TinkerPolicy {
  const connection = connect(stub, apiKey, clock);
  const session = new TinkerSession({
    connection,
    dialect,
    baseModel,
    lora: { rank, seed: 1 },
    tags: ['test'],
    version: '0.25.0',
  });
  const note = (text: string): void => void notes.push(text);
  return new TinkerPolicy({
    service: new TinkerService({
      connection,
      session,
      reduction,
      concurrency: 4,
      baseModel,
      chunks: new PromptChunks(sees),
      note,
    }),
    format,
    model: { base_model: baseModel, rank },
    optimizer: optimizer.parse({ learning_rate: 0.05, max_grad_norm: maxGradNorm, eps }),
    contextSize: 40,
    prefix,
    ownNames: 'attempt',
    downloadsAdapter,
    note,
    store: {
      find: (key, hash) => stored.get(`${key} ${hash}`),
      put: (answer) => void stored.set(`${answer.key} ${answer.requestHash}`, answer),
    },
    keep: () => Promise.resolve(),
    concurrency: 4,
    maxWaitMs,
    stop: new AbortController().signal,
    close: () => Promise.resolve(),
  });
}

export function within(milliseconds = 10_000): Deadline {
  return new Deadline(systemClock, milliseconds);
}
