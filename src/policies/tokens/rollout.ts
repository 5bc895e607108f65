/** Samples answers: each prompt is prefilled once, and its answers decode together over caches that the graph only reads. */
import type { RandomStream } from '../../core/random.js';
import type { Fed, Session, SessionOptions } from '../../engines/onnx/session.js';
import { leavesTensors, TensorCell, type TensorData } from '../../engines/onnx/tensor_cell.js';
import type { Graph, Value } from '../../graph/ir.js';
import type { Weights } from '../../models/files.js';
import type { BatchShape, PromptShape } from '../../nets/decoder/inputs.js';
import type { DecoderConfig } from '../../nets/decoder/config.js';
import { decodeStep, prefill } from '../../nets/decoder/decoder.js';
import { hasWindow, stepInputs } from '../../nets/decoder/inputs.js';
import type { SampleRequest } from '../policy.js';
import type { TokenAnswer, TokenRequest, TokenPrompt } from './batch.js';
import { packPrompts, PADDING, promptColumns, roundUp } from './batch.js';
import { unrestricted, type AnswerState } from './format.js';
import { openVisionTower, type VisionTower } from './vision_tower.js';
import type { PolicyModel } from './model.js';
import { CacheGrowth, CellCaches, writtenCaches } from './cell_caches.js';
import { ArrayCaches, DecodingBatch } from './decoding_batch.js';
import { copiedWeights, packedSessions } from '../../engines/onnx/weight_versions.js';
import { SessionCache } from '../../engines/onnx/session_cache.js';
import { frozenWeights } from './model.js';
import { isOnCpu, poolFor, type FedWeights } from '../../engines/onnx/pool.js';
import type { SamplingOptions } from './sampling.js';
import { logProbOf, sampleToken } from './sampling.js';
import { summedBlocks, summarizeBlocks, TokenRow } from './token_row.js';

/** How a token policy samples. */
export interface TokenSampling extends SamplingOptions {
  readonly maxTokens: number;
  /** The temperature of the recorded log-probabilities; greedy sampling does not change it. */
  readonly logProbTemperature: number;
}

export interface SamplerOptions {
  /** The longest sequence of prompt and answer: an answer ends when it reaches this. */
  readonly contextSize: number;
  /** False lifts every restriction of the format, so that an answer may be anything. */
  readonly constrained: boolean;
  /** Whether a token's log-probability covers only its own part of the vocabulary. */
  readonly separateVocabularies: boolean;
  readonly session: SessionOptions;
  /**
   * Which weights are packed for decoding steps on a CPU: only frozen ones, once and for all, or all, once for each version of them, or none.
   * Default: 'frozen'.
   */
  readonly packed?: 'frozen' | 'all' | 'none';
  /** Whether answers that have ended are computed like others, or leave the batch where it pays, which it does on a CPU alone. Default: 'left_out'. */
  readonly padding?: 'computed' | 'left_out';
  /**
   * Where caches are: arrays of this process, into which a step's columns are written, or cells, which are given anew at each step. Default: cells where a
   * device keeps them.
   */
  readonly caches?: 'arrays' | 'cells';
  /** For a model that sees: a vision encoder shared with others; default: one of its own. */
  readonly visionTower?: VisionTower | null;
}

interface Writer {
  readonly ids: number[];
  readonly logProbs: number[];
  readonly state: AnswerState;
  readonly random: RandomStream;
  /** The largest number of tokens it may have. */
  readonly limit: number;
  latest: number;
  finished: boolean;
}

/**
 * Samples with one model and keeps sessions between calls. Widths depend on all prompts of the request's `among`, so an answer has the same bits
 * whatever else is in its chunk. That holds if the session has one thread. With several threads, a product that is split into parts of 64 columns or
 * fewer, and whose depth is above 128, is summed in other blocks than an unsplit one; whether it is split like that depends on its rows.
 */
export class Sampler<P extends TokenPrompt> {
  readonly #prefill: SessionCache;
  readonly #step: SessionCache;
  /** Replaces `#step` if all weights are packed. */
  readonly #packedStep: ReturnType<typeof packedSessions> | null;
  /** Where caches lie in cells, so do the weights that train. */
  readonly #copied: ReturnType<typeof copiedWeights> | null;
  readonly #visionTower: VisionTower | null;
  readonly #leavesOut: boolean;
  /** Null where caches are arrays. */
  readonly #growth: CacheGrowth | null;

  constructor(
    readonly model: PolicyModel<P>,
    readonly options: SamplerOptions,
  ) {
    const { session, packed = 'frozen', padding = 'left_out' } = options;
    const { caches = leavesTensors(session) ? 'cells' : 'arrays' } = options;
    const inCells = caches === 'cells';
    const packsAll = isOnCpu(session) && packed === 'all';
    this.#growth = inCells ? new CacheGrowth(session) : null;
    this.#copied = inCells && !packsAll ? copiedWeights(session) : null;
    // Elsewhere a graph is compiled for each size, and fewer rows take hardly less time.
    this.#leavesOut = padding === 'left_out' && !inCells && isOnCpu(session);
    // Prompts have many rows, so packing weights would save little: prefill shares the unpacked weights.
    this.#prefill = new SessionCache(
      'prefill',
      inCells ? { ...session, leaves: () => true } : session,
      poolFor(session),
    );
    this.#step = new SessionCache(
      'decode',
      { ...session, leaves: isCache },
      poolFor(session, packed === 'none' ? undefined : frozenWeights(model)),
    );
    this.#packedStep = packsAll ? packedSessions('decode', { ...session, leaves: isCache }) : null;
    this.#visionTower = options.visionTower === undefined ? openVisionTower(model, session) : options.visionTower;
  }

  /** `version` identifies the content of `weights`, which are changed in place. */
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
    { prompts: asked, among, answersPerPrompt, how, random }: SampleRequest<TokenRequest<P>, TokenSampling>,
    weights: FedWeights,
    steps: SessionCache,
  ): Promise<TokenAnswer[][]> {
    const { config, format } = this.model;
    const limitOf = ({ ids }: TokenPrompt): number => Math.min(how.maxTokens, this.options.contextSize - ids.length);
    const all = among.map(({ tokens }) => tokens);
    const prompts = asked.map(({ tokens }) => tokens);
    // Matrix products with a single row have different last bits.
    const rows = Math.max(prompts.length, Math.ceil(2 / answersPerPrompt));
    const widths = answerWidths(Math.max(...all.map(limitOf)));
    const promptWidth = promptColumns(all);
    const promptShape: PromptShape = {
      prompts: rows,
      promptColumns: promptWidth,
      ...(this.#visionTower === null ? {} : { pictures: this.#visionTower.shape(all) }),
    };
    const packed = packPrompts(prompts, rows, promptWidth);
    const seen = await this.#visionTower?.feeds(prompts, promptShape);
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
    // What the prefill gives is held by the batch alone, which lets go of it when it grows smaller.
    const batch = new DecodingBatch(
      config,
      promptWidth,
      await this.#prefillPrompts(promptShape, { ...packed, ...seen }, weights),
      { places: rows, answers: answersPerPrompt },
      prompts.length,
      this.#growth === null
        ? new ArrayCaches(rows * answersPerPrompt, config)
        : new CellCaches(rows * answersPerPrompt, config, this.#growth),
    );
    const writing = (answer: number): boolean => {
      const { finished, ids, limit } = writers[answer];
      return !finished && ids.length < limit;
    };
    let column = 0;
    /** Decodes until the caches are full, no answer goes on, or the batch may be made smaller. */
    const decode = async (): Promise<void> => {
      const { size, caches } = batch;
      const { answer: answerColumns } = batch.columns;
      const placed = batch.prompts.map((p) => prompts[p]);
      const wide: BatchShape = {
        prompts: size.places,
        promptColumns: promptWidth,
        answersPerPrompt: size.answers,
        answerColumns,
      };
      const columns = promptWidth + answerColumns;
      const answerPadding = new Float32Array(answerColumns).fill(PADDING).fill(0, 0, column);
      const window = hasWindow(config, columns) ? new Float32Array(columns) : null;
      const ids = new BigInt64Array(batch.rows.length);
      const positions = new BigInt64Array(caches.batch);
      const perPlace = caches.batch / size.places;
      const rowsOut = new RowOutputs(ids.length, config.vocab_size, how.logProbTemperature);
      const into = { ...caches.outputs, ...rowsOut.arrays };
      // Steps read the prompts' caches and do not need their pictures.
      const feeds = {
        ...batch.promptCaches,
        ...caches.feeds,
        ids,
        positions,
        prompt_padding: batch.ofPlaces(packed.prompt_padding),
        answer_padding: answerPadding,
        inverse_temperature: rowsOut.inverseTemperature,
        ...(window === null ? {} : { window }),
        ...this.#visionTower?.stepFeeds(placed, wide),
      };
      const step = async (session: Session): Promise<void> => {
        for (; column < answerColumns && writers.some((_, answer) => writing(answer)); column++) {
          batch.rows.forEach((row, i) => (ids[i] = row === null ? 0n : BigInt(writers[row.answer].latest)));
          // A model that sees has a row of angles for each column of each place.
          if (this.#visionTower === null) positions.fill(BigInt(promptWidth + column));
          else positions.forEach((_, i) => (positions[i] = BigInt(Math.floor(i / perPlace) * answerColumns + column)));
          window?.fill(PADDING, 0, Math.max(0, promptWidth + column + 1 - (config.sliding_window ?? columns)));
          await caches.step(column, async () => void (await session.run(feeds, weights, into)));
          answerPadding[column] = 0;
          batch.rows.forEach((row, i) => {
            if (row !== null && writing(row.answer)) this.#advance(writers[row.answer], rowsOut.row(i), how);
          });
          if (this.#leavesOut && batch.smaller(writing) !== null) {
            column += 1;
            return;
          }
        }
      };
      await steps.use(wide, (graph) => this.#stepGraph(graph, wide), step);
    };
    try {
      while (writers.some((_, answer) => writing(answer))) {
        if (column === batch.columns.answer) await batch.caches.grow(widths.shift()!);
        await decode();
        // Here no feed holds the arrays that it moves out of.
        if (this.#leavesOut) batch.shrink(writing);
      }
    } finally {
      batch.dispose();
    }
    return prompts.map((_, p) =>
      writers.slice(p * answersPerPrompt, (p + 1) * answersPerPrompt).map((writer) => ({
        ids: Int32Array.from(writer.ids),
        logProbs: Float32Array.from(writer.logProbs),
        finished: writer.finished,
      })),
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

  #advance(writer: Writer, row: TokenRow, how: TokenSampling): void {
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
    shape: PromptShape,
    feeds: Readonly<Record<string, TensorData>>,
    weights: FedWeights,
  ): Promise<Record<string, Fed>> {
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
    const { adapter, ...config } = this.model.config;
    const merged = this.#packedStep !== null && adapter !== undefined;
    const stepConfig: DecoderConfig = merged ? { ...config, adapter: { ...adapter, merged } } : this.model.config;
    const inputs = stepInputs(graph, stepConfig, shape);
    const { logits, ...step } = decodeStep(stepConfig, shape, inputs);
    const caches = this.#growth === null ? columnsOf(step) : writtenCaches(logits, inputs.answers, step);
    const summary =
      summedBlocks(this.model.config.vocab_size) === 0
        ? {}
        : summarizeBlocks(logits, graph.input('inverse_temperature', [1]));
    return { logits, ...summary, ...caches };
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

/** Buffers for a step's rows of logits and the graph's summaries of them. */
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

/** Initial columns of the answers' caches, and the most they are enlarged by. */
const FIRST_COLUMNS = 64;
const MOST_MORE_COLUMNS = 256;

/** The widths of the answers' caches, one after another, until they hold `longest` columns: a step reads all of them. */
function answerWidths(longest: number): number[] {
  const last = roundUp(longest);
  const widths = [Math.min(FIRST_COLUMNS, last)];
  for (let width = widths[0]; width < last; widths.push(width)) {
    width = Math.min(last, width + Math.min(width, MOST_MORE_COLUMNS));
  }
  return widths;
}
