/**
 * The measurements of `scripts/gpu_check`: bare products, and sampling and learning of a decoder with random weights,
 * each on one provider.
 */
import { writeFileSync } from 'node:fs';
import { EditrlError } from '../../src/core/errors.js';
import { RandomStream } from '../../src/core/random.js';
import { resolveProvider, squareProductSpeed } from '../../src/compute/onnx/provider.js';
import { loadRuntime, type Provider, type SessionOptions } from '../../src/compute/onnx/session.js';
import { Graph } from '../../src/compute/graph/ir.js';
import { soloPeers } from '../../src/core/group/peers.js';
import { type DecoderConfig, initDecoder } from '../../src/compute/nets/decoder/config.js';
import { adapt } from '../../src/models/adapters/decoder.js';
import { Learner, type TokenTrainGroup } from '../../src/train/policies/tokens/learner.js';
import { frozenWeights, type PolicyModel, trainedWeights } from '../../src/models/adapters/policy_model.js';
import { Sampler } from '../../src/train/policies/tokens/rollout.js';
import type * as Ort from 'onnxruntime-node';
import { plainFormat, randomLessons } from './lessons.js';
import { productFlops } from './products.js';
import { median } from './short_run.js';

const shared = { rope_theta: 10_000, rms_norm_eps: 1e-5, attention_bias: false, tie_word_embeddings: true };

/** A decoder, and the batch that it samples and learns. */
interface Sized {
  readonly title: string;
  readonly config: DecoderConfig;
  /** Answers to each of two prompts. */
  readonly answers: number;
  readonly promptTokens: number;
  readonly answerTokens: number;
  /** Sides of the square products that are timed with it. */
  readonly sides: readonly number[];
}

const SIZES = {
  tiny: {
    title: 'tiny: 2 layers of 64',
    config: {
      ...shared,
      vocab_size: 512,
      hidden_size: 64,
      intermediate_size: 172,
      num_hidden_layers: 2,
      num_attention_heads: 4,
      num_key_value_heads: 2,
      head_dim: 16,
    },
    answers: 4,
    promptTokens: 13,
    answerTokens: 16,
    sides: [64, 128],
  },
  '0.13b': {
    title: '0.13 B: 30 layers of 576, as SmolLM2-135M',
    config: {
      ...shared,
      vocab_size: 49_152,
      hidden_size: 576,
      intermediate_size: 1536,
      num_hidden_layers: 30,
      num_attention_heads: 9,
      num_key_value_heads: 3,
      head_dim: 64,
    },
    answers: 8,
    promptTokens: 43,
    answerTokens: 64,
    sides: [256, 512, 1024, 2048],
  },
  '1b': {
    title: '1.2 B: 16 layers of 2048, as Llama-3.2-1B',
    config: {
      ...shared,
      vocab_size: 128_256,
      hidden_size: 2048,
      intermediate_size: 8192,
      num_hidden_layers: 16,
      num_attention_heads: 32,
      num_key_value_heads: 8,
      head_dim: 64,
    },
    answers: 8,
    promptTokens: 43,
    answerTokens: 64,
    sides: [256, 512, 1024, 2048, 4096],
  },
} as const satisfies Readonly<Record<string, Sized>>;

export type Size = keyof typeof SIZES;
export const sizes: Readonly<Record<Size, Sized>> = SIZES;

const PROMPTS = 2;
const LORA = { rank: 16, alpha: 32, rslora: false, targets: 'all-linear' };
const LOSS = { policy: 'reinforce', kl: null } as const;
/** Runs that are timed, after one that compiles. */
const ROUNDS = 3;
/** Products of a run whose operands are copied once. */
const CHAINED = 8;

/** The measurements of one process. */
export type Job = {
  readonly provider: Provider;
  /** Null: the number of cores. */
  readonly threads: number | null;
} & (
  | { readonly kind: 'products'; readonly sides: readonly number[] }
  | {
      readonly kind: 'model';
      readonly size: Size;
      /** Null for the reference, which samples nothing and is not timed. */
      readonly rounds: number | null;
      /** The file for log-probabilities and the gradient, as float32. */
      readonly values: string;
    }
);

export interface ProductSpeed {
  readonly side: number;
  /** 1e9 operations per second of one product a run, with its copies to and from the device. */
  readonly single: number;
  /** The same of several products a run. */
  readonly chained: number;
}

export interface Sampling {
  readonly tokensPerSecond: number;
  /** Average bytes of this process's memory that a decoding step reads. */
  readonly fedBytes: number;
}

export interface Learning {
  /** Medians. Null if nothing was timed. */
  readonly logProbSeconds: number | null;
  readonly gradientSeconds: number | null;
  /** Operations of the matrix products of the gradient's graph. */
  readonly flops: number;
  /** The number of log-probabilities in the job's file. The gradient follows them. */
  readonly logProbs: number;
}

/** Progress of a job. `failed` gives the reason for a part without numbers. */
export type Report =
  | { readonly part: 'products'; readonly found: readonly ProductSpeed[] }
  | { readonly part: 'sampling'; readonly found: Sampling }
  | { readonly part: 'learning'; readonly found: Learning }
  | { readonly part: 'memory'; readonly peakBytes: number }
  | { readonly part: Part; readonly failed: string };
export type Part = 'products' | 'sampling' | 'learning';

/** Measures a job part by part. A failed part is reported, and the next one runs. */
export async function* measure(job: Job): AsyncGenerator<Report> {
  const work = job.kind === 'products' ? { products: () => measureProducts(job) } : await modelWorks(job);
  for (const [part, run] of Object.entries(work) as [Part, () => Promise<unknown>][]) {
    try {
      yield { part, found: await run() } as Report;
    } catch (error) {
      if (!(error instanceof Error)) throw error;
      yield { part, failed: error instanceof EditrlError ? error.toText() : error.message };
    }
  }
  // The unit differs between Linux and macOS, but `resourceUsage` gives kilobytes on both.
  yield { part: 'memory', peakBytes: process.resourceUsage().maxRSS * 1024 };
}

type JobOf<K extends Job['kind']> = Extract<Job, { readonly kind: K }>;

async function measureProducts({ provider, threads, sides }: JobOf<'products'>): Promise<ProductSpeed[]> {
  await resolveProvider(provider);
  const speeds: ProductSpeed[] = [];
  for (const side of sides) {
    const asked = { provider, side, rounds: ROUNDS, threads: threads ?? undefined };
    const single = await squareProductSpeed({ ...asked, chained: 1 });
    speeds.push({ side, single, chained: await squareProductSpeed({ ...asked, chained: CHAINED }) });
  }
  return speeds;
}

async function modelWorks(
  job: JobOf<'model'>,
): Promise<Partial<Record<'sampling' | 'learning', () => Promise<Sampling | Learning>>>> {
  const { provider, threads, size } = job;
  // A missing requirement is reported for both parts, without making a model.
  const missing = await resolveProvider(provider).then(
    () => null,
    (error: unknown) => error as Error,
  );
  if (missing !== null) {
    const fail = (): Promise<never> => Promise.reject(missing);
    return { sampling: fail, learning: fail };
  }
  const model = randomModel(sizes[size].config);
  const session: SessionOptions = {
    provider,
    ...(threads === null ? {} : { threads }),
    frozen: new Set(frozenWeights(model).keys()),
  };
  const lessons = randomLessons(new RandomStream('gpu check'), {
    prompts: PROMPTS,
    answers: sizes[size].answers,
    promptTokens: sizes[size].promptTokens,
    answerTokens: () => sizes[size].answerTokens,
    tokens: [0, model.config.vocab_size],
  });
  const learning = (): Promise<Learning> => measureLearning(model, session, lessons, job);
  return job.rounds === null ? { learning } : { sampling: () => measureSampling(model, session, lessons), learning };
}

/** Random weights with an adapter that changes the result. */
function randomModel(plain: DecoderConfig): PolicyModel {
  const frozen = initDecoder(plain, { embedding_std: 0.02, initializer_range: null }, 1);
  const { config, weights } = adapt(plain, frozen, LORA, { seed: 1 });
  // No answer ends early.
  const model = { config, weights, format: plainFormat(config.vocab_size, []) };
  for (const [name, { data }] of trainedWeights(model)) {
    const stream = new RandomStream('gpu check', name);
    if (data.every((value) => value === 0)) data.forEach((_, i) => (data[i] = 0.01 * stream.normal()));
  }
  return model;
}

async function measureSampling(
  model: PolicyModel,
  session: SessionOptions,
  lessons: readonly TokenTrainGroup[],
): Promise<Sampling> {
  const maxTokens = lessons[0].answers[0].ids.length;
  const sampler = new Sampler(model, {
    contextSize: 2048,
    constrained: true,
    separateVocabularies: false,
    session,
    // Weights are held once on every provider.
    packed: 'none',
  });
  const prompts = lessons.map(({ prompt }) => prompt);
  const answersPerPrompt = lessons[0].answers.length;
  const fed = await FedBytes.watch('answer_padding');
  const times: number[] = [];
  try {
    for (let round = 0; round <= ROUNDS; round++) {
      const start = performance.now();
      await sampler.sample(
        {
          prompts,
          among: prompts,
          answersPerPrompt,
          how: { maxTokens, temperature: 1, topP: 1, topK: -1, logProbTemperature: 1 },
          weights: 'current',
          random: (p, g) => new RandomStream('gpu check', p, g),
        },
        model.weights,
        'only',
      );
      if (round > 0) times.push((performance.now() - start) / 1000);
    }
  } finally {
    fed.close();
    await sampler.dispose();
  }
  const tokens = prompts.length * answersPerPrompt * maxTokens;
  return { tokensPerSecond: tokens / median(times), fedBytes: fed.perRun };
}

async function measureLearning(
  model: PolicyModel,
  session: SessionOptions,
  lessons: readonly TokenTrainGroup[],
  { rounds, values }: JobOf<'model'>,
): Promise<Learning> {
  const answersPerPrompt = lessons[0].answers.length;
  const learner = new Learner(model, {
    temperature: 1,
    separateVocabularies: false,
    microBatch: lessons.length * answersPerPrompt,
    gradientCheckpointing: false,
    session,
    peers: soloPeers,
  });
  try {
    const outputs = learner.lossGraph(new Graph('gradient'), learner.shapeOf(lessons), LOSS);
    const statistics = await timed(rounds, () => learner.statistics(lessons, model.weights));
    const gradient = await timed(rounds, async () => {
      await learner.learn(lessons, LOSS);
      return learner.gradients();
    });
    const logProbs = statistics.value.flat().flatMap((one) => [...one.logProbs]);
    const parts = [Float32Array.from(logProbs), ...[...gradient.value].sort(byName).map(([, data]) => data)];
    writeFileSync(values, Buffer.concat(parts.map((part) => Buffer.from(part.buffer, part.byteOffset, part.byteLength)))); // prettier-ignore
    return {
      logProbSeconds: statistics.seconds,
      gradientSeconds: gradient.seconds,
      flops: productFlops(Object.values(outputs)),
      logProbs: logProbs.length,
    };
  } finally {
    await learner.dispose();
  }
}

function byName([a]: readonly [string, unknown], [b]: readonly [string, unknown]): number {
  return a < b ? -1 : 1;
}

/** The result of a measured function, and the median of its seconds after a first run. */
async function timed<T>(
  rounds: number | null,
  work: () => Promise<T>,
): Promise<{ readonly value: T; readonly seconds: number | null }> {
  let value = await work();
  const times: number[] = [];
  for (let round = 0; round < (rounds ?? 0); round++) {
    const start = performance.now();
    value = await work();
    times.push((performance.now() - start) / 1000);
  }
  return { value, seconds: rounds === null ? null : median(times) };
}

/** The class of sessions, which the types do not export. */
interface SessionClass {
  readonly prototype: {
    run: (...args: Parameters<Ort.InferenceSession['run']>) => ReturnType<Ort.InferenceSession['run']>;
  };
}

/** Counts the bytes of this process's memory in runs with a certain input. */
class FedBytes {
  #bytes = 0;
  #runs = 0;

  private constructor(readonly close: () => void) {}

  /** From now on, until it is closed. */
  static async watch(input: string): Promise<FedBytes> {
    const { prototype } = (await loadRuntime()).InferenceSession as unknown as SessionClass;
    const { run } = prototype;
    const fed = new FedBytes(() => (prototype.run = run));
    prototype.run = function (this: Ort.InferenceSession, feeds, ...more) {
      if (input in feeds) {
        fed.#runs += 1;
        for (const tensor of Object.values(feeds)) {
          if (tensor.location === 'cpu') fed.#bytes += (tensor.data as Float32Array).byteLength;
        }
      }
      return run.call(this, feeds, ...more);
    };
    return fed;
  }

  get perRun(): number {
    return this.#bytes / this.#runs;
  }
}
