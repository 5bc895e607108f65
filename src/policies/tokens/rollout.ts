/** Sampling answers: prompts are prefilled once, their answers decode together over caches that the graph only reads. */
import type { RandomStream } from '../../core/random.js';
import type { Session, SessionOptions } from '../../engines/onnx/session.js';
import type { Graph, Value } from '../../graph/ir.js';
import type { Weights } from '../../models/files.js';
import type { BatchShape } from '../../nets/decoder/decoder.js';
import { decodeStep, hasWindow, prefill, stepInputs } from '../../nets/decoder/decoder.js';
import type { SampleRequest } from '../policy.js';
import type { TokenAnswer, TokenAsked, TokenPrompt } from './batch.js';
import { packPrompts, PADDING, promptColumns, roundUp } from './batch.js';
import { unrestricted, type AnswerState } from './format.js';
import type { PolicyModel } from './model.js';
import { SessionCache } from './model.js';
import type { SamplingOptions } from './sampling.js';
import { logProbOf, sampleToken } from './sampling.js';

/** How a token policy is to sample. */
export interface TokenSampling extends SamplingOptions {
  readonly maxTokens: number;
  /** The temperature of the recorded log-probabilities; sampling greedily does not change it. */
  readonly logProbTemperature: number;
}

export interface SamplerOptions {
  /** The longest sequence of prompt and answer: an answer ends where it is reached. */
  readonly contextSize: number;
  /** False lifts every restriction of the format, so that an answer may be anything. */
  readonly constrained: boolean;
  /** Whether a token's log-probability is over its own part of the vocabulary alone. */
  readonly separateVocabularies: boolean;
  readonly session: SessionOptions;
}

interface Writer {
  readonly ids: number[];
  readonly logProbs: number[];
  readonly state: AnswerState;
  readonly random: RandomStream;
  /** The most tokens that it may have. */
  readonly limit: number;
  latest: number;
  finished: boolean;
}

/**
 * Samples with one model; sessions are kept between calls. Widths follow from all prompts of the request's `among`: an answer then has the
 * same bits whatever else is in its chunk. That holds where the session has one thread. With several, a product of which each has 64
 * columns or fewer, and whose depth is above 128, is summed in other blocks than the undivided one; whether it is divided so depends on
 * its rows.
 */
export class Sampler<P extends TokenPrompt> {
  readonly #prefill: SessionCache;
  readonly #step: SessionCache;

  constructor(
    readonly model: PolicyModel<P>,
    readonly options: SamplerOptions,
  ) {
    this.#prefill = new SessionCache('prefill', options.session);
    this.#step = new SessionCache('decode', options.session);
  }

  async sample(
    { prompts: asked, among, answersPerPrompt, how, random }: SampleRequest<TokenAsked<P>, TokenSampling>,
    weights: Weights,
  ): Promise<TokenAnswer[][]> {
    const { config, format } = this.model;
    const limitOf = ({ ids }: TokenPrompt): number => Math.min(how.maxTokens, this.options.contextSize - ids.length);
    const all = among.map(({ tokens }) => tokens);
    const prompts = asked.map(({ tokens }) => tokens);
    // Matrix products have other last bits where they have a single row.
    const rows = Math.max(prompts.length, Math.ceil(2 / answersPerPrompt));
    const shape: BatchShape = {
      prompts: rows,
      answersPerPrompt,
      promptColumns: promptColumns(all),
      answerColumns: roundUp(Math.max(...all.map(limitOf))),
    };
    const packed = packPrompts(prompts, rows, shape.promptColumns);
    const promptCaches = await this.#prefillPrompts(shape, packed, weights);
    const caches = new AnswerCaches(shape, config.num_hidden_layers, config.num_key_value_heads, config.head_dim);
    const writers = prompts.flatMap((prompt, p) =>
      Array.from({ length: answersPerPrompt }, (_, g): Writer => ({
        ids: [],
        logProbs: [],
        state: this.options.constrained ? format.start(prompt) : unrestricted,
        random: random(p, g),
        limit: limitOf(prompt),
        latest: prompt.ids.at(-1)!,
        finished: false,
      })),
    );
    const ids = new BigInt64Array(rows * answersPerPrompt);
    const positions = new BigInt64Array(caches.batch);
    const answerPadding = new Float32Array(shape.answerColumns).fill(PADDING);
    const columns = shape.promptColumns + shape.answerColumns;
    const window = hasWindow(config, columns) ? new Float32Array(columns) : null;
    const logits = new Float32Array(ids.length * config.vocab_size);
    const feeds = {
      ...promptCaches,
      ...caches.arrays,
      ids,
      positions,
      prompt_padding: packed.prompt_padding,
      answer_padding: answerPadding,
      ...(window === null ? {} : { window }),
    };
    const into = { ...caches.columns, logits };
    const decode = async (step: Session): Promise<void> => {
      const writing = ({ finished, ids, limit }: Writer): boolean => !finished && ids.length < limit;
      for (let column = 0; writers.some(writing); column++) {
        writers.forEach((writer, i) => (ids[i] = BigInt(writer.latest)));
        positions.fill(BigInt(shape.promptColumns + column));
        window?.fill(PADDING, 0, Math.max(0, shape.promptColumns + column + 1 - (config.sliding_window ?? columns)));
        await step.run(feeds, weights, into);
        caches.write(column);
        answerPadding[column] = 0;
        writers.forEach((writer, i) => {
          if (!writing(writer)) return;
          this.#advance(writer, logits.subarray(i * config.vocab_size, (i + 1) * config.vocab_size), how);
        });
      }
    };
    await this.#step.use(shape, (graph) => this.#stepGraph(graph, shape), decode);
    return prompts.map((_, p) =>
      writers.slice(p * answersPerPrompt, (p + 1) * answersPerPrompt).map((writer) => ({
        ids: Int32Array.from(writer.ids),
        logProbs: Float32Array.from(writer.logProbs),
        finished: writer.finished,
      })),
    );
  }

  async dispose(): Promise<void> {
    await Promise.all([this.#prefill.dispose(), this.#step.dispose()]);
  }

  #advance(writer: Writer, row: Float32Array, how: TokenSampling): void {
    const allowed = writer.state.next();
    const token = 'forced' in allowed ? allowed.forced : sampleToken(row, allowed.mask, how, writer.random.uniform());
    const { config, format } = this.model;
    const { secondPart, ends } = format;
    const size = config.vocab_size;
    const border = this.options.separateVocabularies ? secondPart : null;
    const [from, to] = border === null ? [0, size] : token < border ? [0, border] : [border, size];
    writer.ids.push(token);
    writer.logProbs.push(logProbOf(row, token, how.logProbTemperature, from, to));
    writer.state.accept(token);
    writer.latest = token;
    writer.finished = ends.has(token);
  }

  async #prefillPrompts(
    shape: BatchShape,
    packed: { prompt_ids: BigInt64Array; prompt_padding: Float32Array },
    weights: Weights,
  ): Promise<Record<string, Float32Array>> {
    const { prompts, promptColumns: columns } = shape;
    const build = (graph: Graph): Record<string, Value> => {
      const ids = graph.input('prompt_ids', [prompts, columns], 'int64');
      const caches = prefill(this.model.config, ids, graph.input('prompt_padding', [prompts, columns]));
      return Object.fromEntries(
        caches.flatMap((cache, i) => [
          [`prompt_keys.${i}`, cache.keysTransposed],
          [`prompt_values.${i}`, cache.values],
        ]),
      );
    };
    return this.#prefill.use(
      [prompts, columns],
      build,
      async (session) => (await session.run({ ...packed }, weights)) as Record<string, Float32Array>,
    );
  }

  #stepGraph(graph: Graph, shape: BatchShape): Record<string, Value> {
    const { logits, keys, values } = decodeStep(this.model.config, shape, stepInputs(graph, this.model.config, shape));
    const columns = keys.flatMap((key, i) => [
      [`key.${i}`, key],
      [`value.${i}`, values[i]],
    ]);
    return { logits, ...(Object.fromEntries(columns) as Record<string, typeof logits>) };
  }
}

/** The answers' caches: static arrays that grow by one column a step. Keys are kept transposed, [rows, depth, columns]. */
class AnswerCaches {
  readonly arrays: Record<string, Float32Array> = {};
  readonly columns: Record<string, Float32Array> = {};
  /** P * K * G. */
  readonly batch: number;
  readonly #length: number;

  constructor(
    shape: BatchShape,
    readonly layers: number,
    keyValueHeads: number,
    readonly depth: number,
  ) {
    this.batch = shape.prompts * shape.answersPerPrompt * keyValueHeads;
    this.#length = shape.answerColumns;
    for (let layer = 0; layer < layers; layer++) {
      this.arrays[`answer_keys.${layer}`] = new Float32Array(this.batch * depth * this.#length);
      this.arrays[`answer_values.${layer}`] = new Float32Array(this.batch * depth * this.#length);
      this.columns[`key.${layer}`] = new Float32Array(this.batch * depth);
      this.columns[`value.${layer}`] = new Float32Array(this.batch * depth);
    }
  }

  write(column: number): void {
    const { depth, batch } = this;
    for (let layer = 0; layer < this.layers; layer++) {
      const keys = this.arrays[`answer_keys.${layer}`];
      const key = this.columns[`key.${layer}`];
      for (let i = 0; i < batch * depth; i++) keys[i * this.#length + column] = key[i]!;
      const values = this.arrays[`answer_values.${layer}`];
      const value = this.columns[`value.${layer}`];
      for (let row = 0; row < batch; row++) {
        values.set(value.subarray(row * depth, (row + 1) * depth), (row * this.#length + column) * depth);
      }
    }
  }
}
