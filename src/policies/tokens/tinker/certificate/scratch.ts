/** A model at the server that is trained to see what becomes of it, and that nobody uses afterwards. */
import pLimit from 'p-limit';
import type { Deadline } from '../../../../core/deadline.js';
import { allOrAbort } from '../../../../core/all_or_abort.js';
import type { Chunk, SampledSequence } from '../../../../engines/tinker/wire/data.js';
import type { TinkerSession } from '../../../../engines/tinker/session.js';
import type { TokenPrompt } from '../../batch.js';
import type { PromptChunks, Sequence } from '../prompts.js';

/** A prompt with an answer that the server sampled. */
export interface DrawnAnswer extends Sequence {
  readonly logProbs: Float64Array | null;
  readonly finished: boolean;
}

/** An answer without a token has nothing to compare. */
export const isWritten = ({ answer }: Sequence): boolean => answer.length > 0;

/** An answer, and the advantage of each of its tokens. */
export interface AdvantageSequence extends Sequence {
  readonly advantages: readonly number[];
}

/** Gives each request its time. */
export type WithDeadline = <R>(work: (within: Deadline) => Promise<R>) => Promise<R>;

interface Draw {
  readonly count: number;
  readonly maxTokens: number;
  readonly stop: readonly number[];
}

/** Learning rates of consecutive steps: small enough not to upset a large model, and large enough in the end for a small one. */
const RATES = [1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3, 1];
const ADAM = { beta1: 0.9, beta2: 0.95, eps: 1e-8, weight_decay: 0, grad_clip_norm: 0 };
/** Seeds of the samples of one prompt and those of the next. */
const SEEDS = 1000;

export class Scratch {
  readonly #slots;

  constructor(
    private readonly session: TinkerSession,
    private readonly chunks: PromptChunks,
    concurrency: number,
    private readonly asked: WithDeadline,
  ) {
    this.#slots = pLimit(concurrency);
  }

  /** A fresh adapter in the place of the one before. */
  begin(): Promise<void> {
    return this.asked((within) => this.session.begin(null, within));
  }

  publish(): Promise<void> {
    return this.asked((within) => this.session.publish(within));
  }

  /** Per sequence, the log-probability of every token but the first. Raises AnswerError where a number is missing or not finite. */
  async logProbs(sequences: readonly Sequence[]): Promise<Float32Array[]> {
    const data = await this.chunks.data(sequences, (one) => ({ weights: ones(one) }));
    return this.asked((within) => this.session.train(data, 'cross_entropy', within, { forwardOnly: true }));
  }

  /** Samples with the weights that were published last. */
  async draw(prompts: readonly TokenPrompt[], { count, maxTokens, stop }: Draw): Promise<DrawnAnswer[]> {
    const all = await this.#each(
      prompts.map((prompt) => this.chunks.of(prompt)),
      (prompt, p, within) =>
        this.session.sample({ prompt, count, maxTokens, temperature: 1, seed: p * SEEDS, stop }, within),
    );
    return all.flatMap(({ sequences }, p) => sequences.map((one) => drawn(prompts[p], one)));
  }

  /** Log-probabilities of whole sequences under the base model, as the server tells them of prompts. */
  async promptLogProbs(sequences: readonly Sequence[]): Promise<(Float64Array | null)[]> {
    const asked = { count: 1, maxTokens: 1, temperature: 1, seed: 0, stop: [], promptLogProbs: true };
    const all = await this.#each(
      sequences.map((one) => this.chunks.whole(one)),
      (prompt, _p, within) => this.session.sampleBase({ prompt, ...asked }, within),
    );
    return all.map(({ promptLogProbs }) => promptLogProbs);
  }

  /**
   * Pushes answers by steps that grow, until the first token of the first answer has changed enough. Gives its log-probability before, which is `known`,
   * and after. No gradient is left: SkyRL gives it to the next model in the same place.
   */
  async push(
    lessons: readonly AdvantageSequence[],
    known: number,
    isEnough: (before: number, now: number) => boolean,
  ): Promise<{ readonly before: number; readonly now: number }> {
    let now = known;
    for (const rate of RATES) {
      await this.#learn(lessons, now);
      await this.asked((within) => this.session.step({ ...ADAM, learning_rate: rate }, within));
      now = firstOf(lessons, await this.logProbs(lessons));
      if (isEnough(known, now)) break;
    }
    return { before: known, now };
  }

  /** Uses up the gradient that the model has, and changes nothing. */
  async spend(): Promise<void> {
    await this.#learn([{ prompt: [0], answer: Int32Array.of(0), advantages: [0] }], 0);
    await this.asked((within) => this.session.step({ ...ADAM, learning_rate: 0 }, within));
  }

  async #learn(lessons: readonly AdvantageSequence[], first: number): Promise<Float32Array[]> {
    const data = await this.chunks.data(lessons, (one) => ({
      advantages: Float32Array.from(one.advantages),
      // All answers begin with the same token, and no other is pushed.
      logprobs: Float32Array.from(one.advantages, (_, t) => (t === 0 ? first : 0)),
      weights: ones(one),
    }));
    return this.asked((within) => this.session.train(data, 'importance_sampling', within));
  }

  #each<T>(
    prompts: readonly Promise<readonly Chunk[]>[],
    ask: (prompt: readonly Chunk[], index: number, within: Deadline) => Promise<T>,
  ): Promise<T[]> {
    const { asked } = this;
    const one = async (p: number): Promise<T> => {
      const prompt = await prompts[p];
      return this.#slots(() => asked((within) => ask(prompt, p, within)));
    };
    return allOrAbort(prompts.map((_, p) => () => one(p)));
  }
}

function drawn({ ids, pictures = [] }: TokenPrompt, { tokens, logProbs, stopped }: SampledSequence): DrawnAnswer {
  return { prompt: ids, pictures, answer: tokens, logProbs, finished: stopped };
}

function ones({ answer }: Sequence): Float32Array {
  return new Float32Array(answer.length).fill(1);
}

/** The log-probability of the first token of the first answer. */
function firstOf([{ prompt }]: readonly Sequence[], [found]: readonly Float32Array[]): number {
  return found[prompt.length - 1];
}
