/**
 * Samples answers. Each prompt is prefilled once, and its answers decode together. The graph reads the caches without
 * copying them.
 */
import type { RandomStream } from '../../../core/random.js';
import {
  type TensorBinding,
  type RunWeights,
  isOnCpu,
  poolFor,
  type Session,
  type SessionOptions,
} from '../../../compute/onnx/session.js';
import { copiedWeights, packedSessions, SessionCache } from '../../../compute/onnx/session_cache.js';
import { canKeepOnDevice, TensorCell, type TensorData } from '../../../compute/onnx/tensors.js';
import type { Graph, Value } from '../../../compute/graph/ir.js';
import type { Weights } from '../../../models/files.js';
import { decodeStep, prefill } from '../../../compute/nets/decoder/decoder.js';
import { type BatchShape, hasWindow, type PromptShape, stepInputs } from '../../../compute/nets/decoder/inputs.js';
import { partOf } from '../../../compute/nets/vision/config.js';
import type { SampleRequest } from '../policy.js';
import { packPrompts, PADDING, promptColumns, roundUp, type TokenAnswer, type TokenRequest } from './batch.js';
import type { TokenPrompt } from '../../../models/tokenizer/format.js';
import { ArrayCaches, CacheGrowth, CellCaches, DecodingBatch, writtenCaches } from './decoding_batch.js';
import { type AnswerState, unrestricted } from '../../../models/tokenizer/format.js';
import { frozenWeights, isTrained, type PolicyModel } from '../../../models/adapters/policy_model.js';
import { logProbOf, sampleToken, type TokenSampling } from './sampling.js';
import { summarizeBlocks, summedBlocks, TokenRow } from './token_row.js';
import { openVisionTower, type VisionTower } from './vision_tower.js';

export interface SamplerOptions {
  /** Maximum length of prompt and answer together. An answer ends when it reaches this length. */
  readonly contextSize: number;
  /** False lifts all restrictions of the format. */
  readonly constrained: boolean;
  /** Whether a token's log-probability covers only its own part of the vocabulary. */
  readonly separateVocabularies: boolean;
  readonly session: SessionOptions;
  /**
   * Whether to prepack weights for decoding on a CPU: frozen ones once, trained ones once per version. Default: 'none'.
   */
  readonly packed?: 'all' | 'none';
  /**
   * The form of caches: arrays of this process into which a step's columns are written, or cells that each step
   * receives and returns. Default: cells if a device holds the caches.
   */
  readonly caches?: 'arrays' | 'cells';
  /** The vision encoder of a vision-language model, if shared with others. Default: a new one. */
  readonly visionTower?: VisionTower | null;
}

/**
 * Samples with one model and keeps its sessions between calls.
 * Widths depend on all prompts in `among`, so an answer has the same bits whatever else is in its chunk. This holds for
 * sessions with one thread. With several threads, a product may be split into parts of at most 64 columns, depending on
 * its rows. If its depth is above 128, the parts are summed in other blocks than the whole product.
 */
export class Sampler<P extends TokenPrompt> {
  readonly #prefill: SessionCache;
  readonly #step: SessionCache;
  /** Replaces `#step` if trained weights are packed. */
  readonly #packedStep: ReturnType<typeof packedSessions> | null;
  /** Trained weights in cells, if caches are in cells. */
  readonly #copied: ReturnType<typeof copiedWeights> | null;
  readonly #visionTower: VisionTower | null;
  /** Null if caches are arrays. */
  readonly #growth: CacheGrowth | null;

  constructor(
    readonly model: PolicyModel<P>,
    readonly options: SamplerOptions,
  ) {
    const { session, packed = 'none', caches = canKeepOnDevice(session) ? 'cells' : 'arrays' } = options;
    const inCells = caches === 'cells';
    const packs = isOnCpu(session) && packed === 'all';
    const packsTrained = packs && decoderTrains(model);
    this.#growth = inCells ? new CacheGrowth(session) : null;
    this.#copied = inCells && !packsTrained ? copiedWeights(session) : null;
    // Prompts have many rows, so packing would save little. Prefill uses the unpacked weights.
    this.#prefill = new SessionCache(
      'prefill',
      inCells ? { ...session, leaves: () => true } : session,
      poolFor(session),
    );
    const stepping = { ...session, leaves: isCache };
    this.#step = new SessionCache('decode', stepping, poolFor(session, packs ? frozenWeights(model) : undefined));
    this.#packedStep = packsTrained ? packedSessions('decode', stepping) : null;
    this.#visionTower = options.visionTower === undefined ? openVisionTower(model, session) : options.visionTower;
  }

  /** Samples answers. `version` identifies the content of `weights`, which change in place. */
  async sample(
    request: SampleRequest<TokenRequest<P>, TokenSampling>,
    weights: Weights,
    version: string,
  ): Promise<TokenAnswer[][]> {
    if (this.#copied !== null) {
      return this.#copied.use(version, weights, (copied) => this.#sample(request, copied.weights, this.#step));
    }
    if (this.#packedStep === null) return this.#sample(request, weights, this.#step);
    return this.#packedStep.use(version, weights, (step) => this.#sample(request, weights, step));
  }

  async #sample(
    { prompts: requests, among, answersPerPrompt, how, random }: SampleRequest<TokenRequest<P>, TokenSampling>,
    weights: RunWeights,
    steps: SessionCache,
  ): Promise<TokenAnswer[][]> {
    const { model, options } = this;
    const limitOf = ({ ids }: TokenPrompt): number => Math.min(how.maxTokens, options.contextSize - ids.length);
    const all = among.map(({ tokens }) => tokens);
    const prompts = requests.map(({ tokens }) => tokens);
    // Matrix products with a single row have different last bits.
    const places = Math.max(prompts.length, Math.ceil(2 / answersPerPrompt));
    const promptWidth = promptColumns(all);
    const promptShape: PromptShape = {
      prompts: places,
      promptColumns: promptWidth,
      ...(this.#visionTower === null ? {} : { images: this.#visionTower.shape(all) }),
    };
    const packed = packPrompts(prompts, places, promptWidth);
    const imageFeeds = await this.#visionTower?.feeds(prompts, promptShape);
    const writers = prompts.flatMap((prompt, p) =>
      Array.from({ length: answersPerPrompt }, (_, g) => {
        const state = options.constrained ? model.format.start(prompt) : unrestricted;
        return new Writer(model, options, how, state, random(p, g), limitOf(prompt), prompt.ids.at(-1)!);
      }),
    );
    const rows = places * answersPerPrompt;
    // Only the batch references the prefill's caches, so that they are freed when it shrinks.
    const batch = new DecodingBatch(
      model.config,
      promptWidth,
      await this.#prefillPrompts(promptShape, { ...packed, ...imageFeeds }, weights),
      { places, answers: answersPerPrompt },
      prompts.length,
      this.#growth === null ? new ArrayCaches(rows, model.config) : new CellCaches(rows, model.config, this.#growth),
    );
    const decoder = new Decoder({
      batch,
      writers,
      prompts,
      promptWidth,
      promptPadding: packed.prompt_padding,
      model,
      temperature: how.logProbTemperature,
      visionTower: this.#visionTower,
      // A device compiles a graph for each size, and fewer rows save hardly any time.
      leavesOut: this.#growth === null && isOnCpu(options.session),
      build: (graph, shape) => this.#stepGraph(graph, shape),
    });
    await decoder.run(answerWidths(Math.max(...all.map(limitOf))), steps, weights);
    return prompts.map((_, p) =>
      writers.slice(p * answersPerPrompt, (p + 1) * answersPerPrompt).map((writer) => writer.answer),
    );
  }

  async dispose(): Promise<void> {
    await Promise.all([
      this.#prefill.dispose(),
      this.#step.dispose(),
      this.#packedStep?.dispose(),
      this.#growth?.dispose(),
      this.#copied?.dispose(),
      this.options.visionTower === undefined ? this.#visionTower?.dispose() : null,
    ]);
  }

  async #prefillPrompts(
    shape: PromptShape,
    feeds: Readonly<Record<string, TensorData>>,
    weights: RunWeights,
  ): Promise<Record<string, TensorBinding>> {
    const { prompts, promptColumns: columns } = shape;
    const build = (graph: Graph): Record<string, Value> => {
      const promptIds = graph.input('prompt_ids', [prompts, columns], 'int64');
      const promptPadding = graph.input('prompt_padding', [prompts, columns]);
      const caches = prefill(this.model.config, shape, { promptIds, promptPadding });
      return Object.fromEntries(
        caches.flatMap((cache, i) => [
          [`prompt_keys.${i}`, cache.keysTransposed],
          [`prompt_values.${i}`, cache.values],
        ]),
      );
    };
    return this.#prefill.use(shape, build, async (session) => {
      if (this.#growth === null) return session.run(feeds, weights);
      const cells = Object.fromEntries([...session.outputs.keys()].map((name) => [name, new TensorCell()]));
      await session.run(feeds, weights, cells);
      return cells;
    });
  }

  #stepGraph(graph: Graph, shape: BatchShape): Record<string, Value> {
    const { config } = this.model;
    const inputs = stepInputs(graph, config, shape);
    const { logits, ...step } = decodeStep(config, shape, inputs);
    const caches = this.#growth === null ? columnsOf(step) : writtenCaches(logits, inputs.answers, step);
    const summary =
      summedBlocks(config.vocab_size) === 0 ? {} : summarizeBlocks(logits, graph.input('inverse_temperature', [1]));
    return { logits, ...summary, ...caches };
  }
}

/** Whether training changes weights of the decoder itself. */
function decoderTrains(model: PolicyModel): boolean {
  if (model.config.adapter !== undefined) return false;
  return [...model.weights.keys()].some((name) => partOf(name) === 'mm_llm' && isTrained(model, name));
}

/** One answer in progress. */
class Writer {
  readonly #ids: number[] = [];
  readonly #logProbs: number[] = [];
  #finished = false;

  constructor(
    private readonly model: PolicyModel,
    private readonly options: Pick<SamplerOptions, 'separateVocabularies'>,
    private readonly how: TokenSampling,
    private readonly state: AnswerState,
    private readonly random: RandomStream,
    /** Maximum number of tokens. */
    private readonly limit: number,
    /** The latest token, which is the next step's input. */
    public latest: number,
  ) {}

  get isWriting(): boolean {
    return !this.#finished && this.#ids.length < this.limit;
  }

  get answer(): TokenAnswer {
    return {
      ids: Int32Array.from(this.#ids),
      logProbs: Float32Array.from(this.#logProbs),
      finished: this.#finished,
    };
  }

  /** Draws the next token. */
  write(row: TokenRow): void {
    const { how, model } = this;
    const allowed = this.state.next();
    const token = 'forced' in allowed ? allowed.forced : sampleToken(row, allowed.mask, how, this.random.uniform());
    const size = model.config.vocab_size;
    const border = this.options.separateVocabularies ? model.format.secondPart : null;
    const [from, to] = border === null ? [0, size] : token < border ? [0, border] : [border, size];
    this.#ids.push(token);
    this.#logProbs.push(logProbOf(row, token, how.logProbTemperature, from, to));
    this.state.accept(token);
    this.latest = token;
    this.#finished = model.format.ends.has(token);
  }
}

/** A batch with the model that decodes it. */
interface Decoding {
  readonly batch: DecodingBatch;
  readonly writers: readonly Writer[];
  readonly prompts: readonly TokenPrompt[];
  readonly promptWidth: number;
  /** [prompts, columns] */
  readonly promptPadding: Float32Array;
  readonly model: PolicyModel;
  /** Temperature of the recorded log-probabilities. */
  readonly temperature: number;
  readonly visionTower: VisionTower | null;
  /** Whether the batch may shrink when answers have finished. */
  readonly leavesOut: boolean;
  readonly build: (graph: Graph, shape: BatchShape) => Record<string, Value>;
}

/** Decodes the answers of one batch. A step adds one column to all answers. */
class Decoder {
  /** The column of the next step. */
  #column = 0;

  constructor(private readonly of: Decoding) {}

  /**
   * Decodes all answers to their ends and frees the batch. `widths` are the successive widths of the answers' caches.
   */
  async run(widths: number[], steps: SessionCache, weights: RunWeights): Promise<void> {
    const { batch, leavesOut } = this.of;
    try {
      while (this.#continues) {
        if (this.#column === batch.columns.answer) await batch.caches.grow(widths.shift()!);
        await this.#decode(steps, weights);
        // No feed references the arrays that it moves out of.
        if (leavesOut) batch.shrink(this.#isWriting);
      }
    } finally {
      batch.dispose();
    }
  }

  get #continues(): boolean {
    return this.of.writers.some(({ isWriting }) => isWriting);
  }

  readonly #isWriting = (answer: number): boolean => this.of.writers[answer].isWriting;

  /** Decodes until the caches are full, all answers have ended, or the batch may shrink. */
  async #decode(steps: SessionCache, weights: RunWeights): Promise<void> {
    const { batch, prompts, promptWidth, visionTower, model, leavesOut, build } = this.of;
    const { size, caches } = batch;
    const { answer: answerColumns } = batch.columns;
    const shape: BatchShape = {
      prompts: size.places,
      promptColumns: promptWidth,
      answersPerPrompt: size.answers,
      answerColumns,
    };
    const columns = promptWidth + answerColumns;
    const padding = new Float32Array(answerColumns).fill(PADDING).fill(0, 0, this.#column);
    const window = hasWindow(model.config, columns) ? new Float32Array(columns) : null;
    const ids = new BigInt64Array(batch.rows.length);
    const positions = new BigInt64Array(caches.batch);
    const rows = new RowOutputs(ids.length, model.config.vocab_size, this.of.temperature);
    // Steps read the prompts' caches and need no images.
    const feeds = {
      ...batch.promptCaches,
      ...caches.feeds,
      ids,
      positions,
      prompt_padding: batch.ofPlaces(this.of.promptPadding),
      answer_padding: padding,
      inverse_temperature: rows.inverseTemperature,
      ...(window === null ? {} : { window }),
      ...visionTower?.stepFeeds(
        batch.prompts.map((p) => prompts[p]),
        shape,
      ),
    };
    const into = { ...caches.outputs, ...rows.arrays };
    const decode = async (session: Session): Promise<void> => {
      for (; this.#column < answerColumns && this.#continues; this.#column++) {
        const column = this.#column;
        this.#feedTokens(ids, positions, answerColumns);
        window?.fill(PADDING, 0, Math.max(0, promptWidth + column + 1 - (model.config.sliding_window ?? columns)));
        await caches.step(column, async () => void (await session.run(feeds, weights, into)));
        padding[column] = 0;
        batch.rows.forEach((row, i) => {
          if (row !== null && this.#isWriting(row.answer)) this.of.writers[row.answer].write(rows.row(i));
        });
        if (leavesOut && batch.smaller(this.#isWriting) !== null) {
          this.#column += 1;
          return;
        }
      }
    };
    await steps.use(shape, (graph) => build(graph, shape), decode);
  }

  /** Sets each row's token and each head's position. */
  #feedTokens(ids: BigInt64Array, positions: BigInt64Array, answerColumns: number): void {
    const { batch, writers, promptWidth, visionTower } = this.of;
    batch.rows.forEach((row, i) => (ids[i] = row === null ? 0n : BigInt(writers[row.answer].latest)));
    if (visionTower === null) {
      positions.fill(BigInt(promptWidth + this.#column));
      return;
    }
    // A vision-language model has one row of angles per column of a place.
    const perPlace = positions.length / batch.size.places;
    positions.forEach((_, i) => (positions[i] = BigInt(Math.floor(i / perPlace) * answerColumns + this.#column)));
  }
}

/** The columns that a step adds to each layer's caches. */
function columnsOf({ keys, values }: Readonly<Record<'keys' | 'values', readonly Value[]>>): Record<string, Value> {
  const columns = (name: string, of: readonly Value[]): [string, Value][] => of.map((x, i) => [`${name}.${i}`, x]);
  return Object.fromEntries([...columns('key', keys), ...columns('value', values)]);
}

/** Whether a step's output is a cache, which the next step reads. */
function isCache(output: string): boolean {
  return output.startsWith('answer_');
}

/** Buffers for a step's logits and the graph's summaries of them. */
class RowOutputs {
  readonly arrays: Readonly<Record<'logits' | 'maxima' | 'shares', Float32Array>>;
  readonly inverseTemperature: Float32Array;
  readonly #blocks: number;

  constructor(
    rows: number,
    private readonly vocabulary: number,
    private readonly temperature: number,
  ) {
    this.#blocks = summedBlocks(vocabulary);
    this.inverseTemperature = Float32Array.of(1 / temperature);
    const summary = (): Float32Array => new Float32Array(rows * this.#blocks);
    this.arrays = { logits: new Float32Array(rows * vocabulary), maxima: summary(), shares: summary() };
  }

  row(index: number): TokenRow {
    const part = (name: 'logits' | 'maxima' | 'shares', size: number): Float32Array =>
      this.arrays[name].subarray(index * size, (index + 1) * size);
    const logits = part('logits', this.vocabulary);
    if (this.#blocks === 0) return new TokenRow(logits);
    const { temperature } = this;
    return new TokenRow(logits, {
      temperature,
      maxima: part('maxima', this.#blocks),
      shares: part('shares', this.#blocks),
    });
  }
}

/** Initial number of columns of the answers' caches, and the maximum number of columns per enlargement. */
const FIRST_COLUMNS = 64;
const MAX_MORE_COLUMNS = 256;

/**
 * Successive widths of the answers' caches up to `longest` columns. Small caches save time, because a step reads all
 * columns.
 */
function answerWidths(longest: number): number[] {
  const last = roundUp(longest);
  const widths = [Math.min(FIRST_COLUMNS, last)];
  for (let width = widths[0]; width < last; widths.push(width)) {
    width = Math.min(last, width + Math.min(width, MAX_MORE_COLUMNS));
  }
  return widths;
}
