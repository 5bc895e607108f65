/**
 * Checks the computations of a training server before a run: positions of log-probabilities, ends of answers, one
 * gradient step, and the reduction of losses. A server that computes something else would change training without an
 * error.
 */
import pLimit from 'p-limit';
import { Deadline, allOrAbort } from '../../../core/clock.js';
import { EditrlError } from '../../../core/errors.js';
import type { TinkerConnection } from './connection.js';
import type { TinkerSession } from './session.js';
import type { TokenFormat } from '../../../models/tokenizer/format.js';
import { PromptChunks, type Sequence } from './prompts.js';
import { TIDY_MS, type Reduction } from './served.js';

/** Calls `work` with a deadline. */
export type WithDeadline = <R>(work: (within: Deadline) => Promise<R>) => Promise<R>;

export interface ProbeOptions {
  readonly connection: Pick<TinkerConnection, 'clock' | 'url'>;
  /** A separate session, which is closed afterwards. */
  readonly session: TinkerSession;
  readonly concurrency: number;
  readonly withDeadline: WithDeadline;
  readonly format: Pick<TokenFormat, 'size' | 'ends'>;
  /** The reduction in the settings. Null to detect it. */
  readonly reduction: Reduction | null;
  /** Whether the run samples while it trains. */
  readonly samplesAhead: boolean;
}

/** A training server failed its self-check. */
export class ProbeError extends EditrlError {
  readonly code = 'training_server';
}

/** An answer that the server sampled. */
interface Drawn extends Sequence {
  readonly logProbs: Float64Array | null;
  readonly finished: boolean;
}

/** An answer with the advantage of each token. */
type ProbeGroup = Sequence & { readonly advantages: readonly number[] };

/** Number of prompts, answers per prompt, tokens per answer, and tokens per prompt. */
const [PROMPTS, ANSWERS, LENGTH, OPENING] = [4, 4, 16, 8];
/** Maximum mean difference in nats between log-probabilities that count as equal. */
const SAME = 0.1;
/** Learning rates of consecutive steps. The first ones suit a large model, the last ones a small one. */
const RATES = [1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3, 1];
const ADAM = { beta1: 0.9, beta2: 0.95, eps: 1e-8, weight_decay: 0, grad_clip_norm: 0 };
/** Changes of a log-probability in nats: a step has increased it, has increased it enough, or has a clear direction. */
const [RISEN, ENOUGH, DECIDED] = [0.05, 1, 0.2];

/**
 * Checks a server and returns its reduction.
 * Raises ProbeError with all problems, and EndpointError if the server stays unreachable, rejects a request or omits numbers.
 * Leaves no gradient and no model behind, because SkyRL would give the gradient of a killed run to the next model in
 * the same slot.
 */
export async function probeServer(options: ProbeOptions): Promise<Reduction> {
  const { session, connection } = options;
  try {
    return await new Probe(options).run();
  } finally {
    const brief = new Deadline(connection.clock, TIDY_MS);
    await session.close(brief).finally(() => brief.dispose());
  }
}

class Probe {
  readonly #chunks = new PromptChunks(null);
  readonly #slots;

  constructor(private readonly options: ProbeOptions) {
    this.#slots = pLimit(options.concurrency);
  }

  async run(): Promise<Reduction> {
    const { format, reduction } = this.options;
    const ends = [...format.ends];
    await this.#begin();
    await this.#step([{ prompt: [0], answer: Int32Array.of(0), advantages: [0] }], 0, 0);
    await this.#publish();
    const starts = spread(format, PROMPTS).map((id) => [id]);
    const openings = await this.#draw(starts, 1, OPENING, ends);
    const prompts = openings.map(({ prompt, answer }) => [...prompt, ...answer]);
    const answers = await this.#draw(prompts, ANSWERS, LENGTH, ends);
    const positions = await this.#compared(answers);
    // The same prompts and seeds soon produce one of these tokens.
    const stop = [...new Set([...ends, ...answers.flatMap(({ answer }) => [...answer].slice(0, 2))])];
    const early = await this.#draw(prompts, ANSWERS, LENGTH, stop);
    const wrong = [...positions, ...wrongEnds(answers, ends).slice(0, 1), ...wrongEnds(early, stop).slice(0, 1)];
    // The effect of a step is measured by log-probabilities.
    if (positions.length > 0) throw this.#error(wrong);

    const [prompt] = prompts;
    const tokens = [...new Set([...answers.flatMap(({ answer }) => [...answer.slice(0, 1)]), ...spread(format, 12)])];
    const tried = tokens.map((id) => ({ prompt, answer: Int32Array.of(id) }));
    const at = (await this.#logProbs(tried)).map((found) => found[prompt.length - 1]);
    // The most probable token whose log-probability can still rise by ENOUGH.
    const order = at.map((_, i) => i).sort((i, j) => at[j] - at[i]);
    const best = order.find((i) => at[i] <= -ENOUGH) ?? order[order.length - 1];
    const alone = tried[best];
    const rise = await this.#push([{ ...alone, advantages: [1] }], at[best], ENOUGH);
    if (rise < RISEN) {
      throw this.#error([...wrong, `a token with a positive advantage changes by ${rise.toFixed(2)} nats`]);
    }
    if (this.options.samplesAhead) {
      // The sampler still has the earlier weights.
      await this.#draw([prompt], 1, 1, ends);
      const moved = at[best] + rise - (await this.#logProbs([alone]))[0][prompt.length - 1];
      if (Math.abs(moved) > SAME) {
        wrong.push('sampling with older weights changes the weights that train (rollout.ahead)');
      }
    }
    await this.#publish();
    wrong.push(...(await this.#compared(await this.#draw([prompt], 2 * ANSWERS, 4, ends), ' after a step')));

    // In an answer of two tokens, a token weighs 1 if losses are summed and 1/2 if they are averaged. So a weight above
    // 1, or above 2, is needed to outweigh a single-token answer.
    const pair = { prompt, answer: Int32Array.of(tokens[best], tokens[(best + 1) % tokens.length]) };
    const rises = async (up: number): Promise<boolean | null> => {
      await this.#begin();
      const change = await this.#push(
        [
          { ...alone, advantages: [-1] },
          { ...pair, advantages: [up, 0] },
        ],
        at[best],
        DECIDED,
      );
      return Math.abs(change) < DECIDED ? null : change > 0;
    };
    const isSum = await rises(1.5);
    const isBounded = (await rises(isSum === true ? 0.75 : 3)) === (isSum === false);
    const found: Reduction = isSum === true ? 'sum' : 'mean_per_datum';
    if (isSum === null || !isBounded) wrong.push('losses of tokens are neither summed nor averaged over each answer');
    else if (reduction !== null && reduction !== found) {
      wrong.push(`the reduction of losses is '${found}', and policy.trainer.reduction is '${reduction}'`);
    }
    if (wrong.length > 0) throw this.#error(wrong);
    return found;
  }

  #error(wrong: readonly string[]): ProbeError {
    return new ProbeError(`the training server failed its self-check: ${wrong.join('; ')}`, {
      where: this.options.connection.url,
      next: 'Check the version of the server and policy.trainer.reduction. Check that it trains and samples policy.trainer.base_model in one precision, and that policy.tokenizer belongs to that model.',
    });
  }

  /** Problems with the log-probabilities of trainer and sampler. */
  async #compared(answers: readonly Drawn[], when = ''): Promise<string[]> {
    const written = answers.filter(({ answer }) => answer.length > 0);
    const trained = await this.#logProbs(written);
    const differences = [0, 1, -1].map((shift) => {
      const all = written.flatMap(({ prompt, logProbs }, i) =>
        Array.from(logProbs ?? [], (one, t) => Math.abs(one - trained[i][prompt.length - 1 + t + shift])),
      );
      const known = all.filter(Number.isFinite);
      return { shift, difference: known.reduce((sum, one) => sum + one, 0) / known.length };
    });
    const short = written.find(({ answer, logProbs }) => logProbs !== null && logProbs.length !== answer.length);
    if (short !== undefined) {
      return [`the sampler gives ${short.logProbs!.length} log-probabilities for ${short.answer.length} tokens`];
    }
    const { shift, difference } = differences.find((one) => one.difference <= SAME) ?? differences[0];
    if (shift !== 0) return [`log-probabilities are shifted by ${shift} between sampler and trainer`];
    // A server that returns none with its samples cannot be compared.
    if (!(difference > SAME)) return [];
    return [
      `log-probabilities of sampler and trainer differ by ${difference.toFixed(2)} nats${when}; allowed: ${SAME}`,
    ];
  }

  /** Replaces the adapter with a new one. */
  readonly #begin = (): Promise<void> =>
    this.options.withDeadline((within) => this.options.session.begin(null, within));

  readonly #publish = (): Promise<void> => this.options.withDeadline((within) => this.options.session.publish(within));

  /** Samples with the last published weights. */
  async #draw(
    prompts: readonly (readonly number[])[],
    count: number,
    maxTokens: number,
    stop: readonly number[],
  ): Promise<Drawn[]> {
    const { session, withDeadline: withLimit } = this.options;
    const one = async (ids: readonly number[], p: number): Promise<Drawn[]> => {
      const prompt = await this.#chunks.of({ ids });
      const request = { prompt, count, maxTokens, temperature: 1, seed: 1000 * p, stop };
      const { sequences } = await this.#slots(() => withLimit((within) => session.sample(request, within)));
      return sequences.map(({ tokens, logProbs, stopped }) => ({
        prompt: ids,
        answer: tokens,
        logProbs,
        finished: stopped,
      }));
    };
    return (await allOrAbort(prompts.map((ids, p) => () => one(ids, p)))).flat();
  }

  /**
   * The log-probability of every token except the first, per sequence. Raises TinkerError if a number is missing or not
   * finite.
   */
  async #logProbs(sequences: readonly Sequence[]): Promise<Float32Array[]> {
    const { session, withDeadline: withLimit } = this.options;
    const data = await this.#chunks.data(sequences, (one) => ({ weights: ones(one) }));
    return withLimit((within) => session.train(data, 'cross_entropy', within, { forwardOnly: true }));
  }

  /**
   * Takes steps of growing size until the change is at least `enough`. Returns the change of the log-probability of the
   * first group's first token.
   */
  async #push(trainGroups: readonly ProbeGroup[], before: number, enough: number): Promise<number> {
    let now = before;
    for (const rate of RATES) {
      await this.#step(trainGroups, now, rate);
      now = (await this.#logProbs(trainGroups))[0][trainGroups[0].prompt.length - 1];
      if (Math.abs(now - before) >= enough) break;
    }
    return now - before;
  }

  async #step(trainGroups: readonly ProbeGroup[], first: number, learningRate: number): Promise<void> {
    const { session, withDeadline: withLimit } = this.options;
    const data = await this.#chunks.data(trainGroups, (one) => ({
      advantages: Float32Array.from(one.advantages),
      // All answers begin with the same token, and only that token has a derivative.
      logprobs: Float32Array.from(one.advantages, (_, t) => (t === 0 ? first : 0)),
      weights: ones(one),
    }));
    await withLimit((within) => session.train(data, 'importance_sampling', within));
    await withLimit((within) => session.step({ ...ADAM, learning_rate: learningRate }, within));
  }
}

/** Problems with the ends of answers that stop at `stop`. */
function wrongEnds(answers: readonly Drawn[], stop: readonly number[]): string[] {
  return answers.flatMap(({ answer, finished }) => {
    const at = answer.findIndex((id) => stop.includes(id));
    if (at >= 0 && at < answer.length - 1) {
      return `an answer continues after the token ${answer[at]}, which should end it`;
    }
    if (at >= 0) return finished ? [] : `an answer ends with the token ${answer[at]}, and does not say that it stopped`;
    if (finished) return `an answer says that it stopped, and its last token is ${answer.at(-1) ?? 'none'}`;
    return answer.length === LENGTH ? [] : `an answer ends after ${answer.length} of ${LENGTH} tokens without an end`;
  });
}

/** Ids spread over the vocabulary, without end tokens. */
function spread({ size, ends }: ProbeOptions['format'], count: number): number[] {
  const plain = (id: number): number => (ends.has(id) ? plain((id + 1) % size) : id);
  return Array.from({ length: count }, (_, i) => plain(Math.floor(((i + 1) * size) / (count + 1))));
}

function ones({ answer }: Sequence): Float32Array {
  return new Float32Array(answer.length).fill(1);
}
