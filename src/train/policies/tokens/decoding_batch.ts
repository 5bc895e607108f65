/**
 * The answers that decode together: places for several answers of one prompt, with the caches of prompts and of answers. Answers that have ended may
 * leave it, and the others then move together.
 */
import { InternalError } from '../../../core/errors.js';
import type { Fed, SessionOptions } from '../../../compute/onnx/session.js';
import { TensorCell } from '../../../compute/onnx/tensors.js';
import { headsOf } from '../../../compute/nets/decoder/heads.js';
import type { DecoderConfig } from '../../../compute/nets/decoder/config.js';
import { SessionCache } from '../../../compute/onnx/session_cache.js';
import { pad, reshape, where } from '../../../compute/graph/build.js';
import type { Graph, Value } from '../../../compute/graph/ir.js';
import type { LayerCache } from '../../../compute/nets/decoder/inputs.js';

/** Places, and answers of one prompt in each. */
export interface BatchSize {
  readonly places: number;
  readonly answers: number;
}

/** Columns of the caches of prompts and of answers. */
interface Columns {
  readonly prompt: number;
  readonly answer: number;
}

/** Fewer rows than this take hardly less time: a step then reads all weights for few products. */
const LEAST_ROWS = 8;
/** A batch is made smaller where at least this share of its rows is left over. */
const LEFT_OVER = 1 / 4;
/** Answers share their prompt's cache where that leaves at most this share of rows empty. */
const EMPTY_FOR_SHARING = 1 / 8;

/** The next size with three quarters or all of a power of two rows, so that few different graphs are made. */
function roundRows(rows: number): number {
  const power = 2 ** Math.ceil(Math.log2(rows));
  const between = (3 * power) / 4;
  return Math.max(LEAST_ROWS, rows <= between ? between : power);
}

/**
 * The size of a batch for what is left of each prompt's answers. Null where the batch is better left as it is. Rows are fewer by a quarter, and the
 * caches of prompts, which are repeated where answers of one prompt take several places, and of answers hold no more than now.
 */
export function smallerBatch(
  left: readonly number[],
  now: BatchSize,
  columns: Columns,
  /** A product with a single row rounds differently, so that every place has at least two: answers times queries per head. */
  queriesPerHead: number,
): BatchSize | null {
  const rows = now.places * now.answers;
  const held = now.places * columns.prompt + rows * columns.answer;
  const sizes: BatchSize[] = [];
  for (let { answers } = now; answers >= 1; answers = answers % 2 === 0 ? answers / 2 : 0) {
    if (answers !== now.answers && answers * queriesPerHead < 2) break;
    const needed = left.reduce((sum, count) => sum + Math.ceil(count / answers), 0);
    const places = Math.max(needed, Math.floor(roundRows(needed * answers) / answers));
    const fits = places * answers <= (1 - LEFT_OVER) * rows;
    if (fits && places * (columns.prompt + answers * columns.answer) <= held) sizes.push({ places, answers });
  }
  const fewest = Math.min(...sizes.map(({ places, answers }) => places * answers));
  return sizes.find(({ places, answers }) => places * answers * (1 - EMPTY_FOR_SHARING) <= fewest) ?? null;
}

/** One answer's row: the index of the answer, and of the prompt. */
interface Row {
  readonly answer: number;
  readonly prompt: number;
}

/** The answers' caches, which gain one column a step and are enlarged as needed. */
export interface AnswerCaches {
  /** Rows times key and value heads. */
  readonly batch: number;
  /** Columns that there is room for. */
  readonly length: number;
  /** What a step is fed, by its inputs. */
  readonly feeds: Readonly<Record<string, Fed>>;
  /** What a step writes into, by its outputs. */
  readonly outputs: Readonly<Record<string, Fed>>;
  /** Makes room for `length` columns and keeps the filled ones. */
  grow(length: number): void | Promise<void>;
  /** Runs a step, whose keys and values become this column. */
  step(column: number, run: () => Promise<void>): Promise<void>;
  /** Frees what is on a device. */
  dispose(): void;
}

/**
 * The rows and caches of a batch. Prompts' caches are [places, K, D, Tp] and [places, K, Tp, D] by layer, answers' [places * K * answers, D, Ta] and
 * [places * K * answers, Ta, D].
 */
export class DecodingBatch {
  /** The prompt of each place. Those without answers have any. */
  prompts: readonly number[];
  /** For each place one after another, its answers. Null for none. */
  rows: readonly (Row | null)[];
  readonly promptCaches: Record<string, Fed>;

  constructor(
    private readonly config: DecoderConfig,
    private readonly promptColumns: number,
    promptCaches: Readonly<Record<string, Fed>>,
    public size: BatchSize,
    /** The first places are these prompts', in their order. */
    prompts: number,
    public caches: AnswerCaches,
  ) {
    const { places, answers } = size;
    this.promptCaches = { ...promptCaches };
    this.prompts = Array.from({ length: places }, (_, place) => Math.min(place, prompts - 1));
    this.rows = Array.from({ length: places * answers }, (_, row) => {
      const prompt = Math.floor(row / answers);
      return prompt < prompts ? { prompt, answer: row } : null;
    });
  }

  get columns(): Columns {
    return { prompt: this.promptColumns, answer: this.caches.length };
  }

  /** The columns of the places' prompts, from those of all prompts. */
  ofPlaces(columns: Float32Array): Float32Array {
    return blocksOf(columns, columns.length / this.promptColumns, this.prompts);
  }

  /** The size to which the answers that go on may move together. Null where the batch is better left as it is. */
  smaller(goesOn: (answer: number) => boolean): BatchSize | null {
    const counts = this.#left(goesOn).map(({ rows }) => rows.length);
    if (counts.length === 0) return null;
    return smallerBatch(counts, this.size, this.columns, headsOf(this.config).queriesPerHead);
  }

  /**
   * Moves the answers that go on together, if that makes the batch small enough to pay. Returns whether it did. Each array is given up before the next
   * is made, so that the caches lie there twice only where somebody else holds them. Raises InternalError for caches in cells.
   */
  shrink(goesOn: (answer: number) => boolean): boolean {
    const next = this.smaller(goesOn);
    if (next === null) return false;
    const places = this.#left(goesOn).flatMap(({ from, rows }) =>
      Array.from({ length: Math.ceil(rows.length / next.answers) }, (_, i) => ({
        from,
        rows: rows.slice(i * next.answers, (i + 1) * next.answers),
      })),
    );
    while (places.length < next.places) places.push({ from: places[0].from, rows: [] });
    const fromRows = places.flatMap(({ rows }) => Array.from({ length: next.answers }, (_, i) => rows[i] ?? null));
    const { caches } = this;
    if (!(caches instanceof ArrayCaches)) throw new InternalError('answers whose caches are in cells do not move');
    for (const [name, cache] of Object.entries(this.promptCaches)) {
      if (!(cache instanceof Float32Array)) throw new InternalError(`${name} is in a cell and does not move`);
      this.promptCaches[name] = blocksOf(cache, this.size.places, places.map(({ from }) => from)); // prettier-ignore
    }
    this.caches = caches.moved(this.size, next, fromRows);
    this.prompts = places.map(({ from }) => this.prompts[from]);
    this.rows = fromRows.map((from) => (from === null ? null : this.rows[from]));
    this.size = next;
    return true;
  }

  /** Frees what is on a device. */
  dispose(): void {
    for (const cache of Object.values(this.promptCaches)) if (cache instanceof TensorCell) cache.dispose();
    this.caches.dispose();
  }

  /** By prompt, one of its places, and the rows of its answers that go on. */
  #left(goesOn: (answer: number) => boolean): readonly { readonly from: number; readonly rows: readonly number[] }[] {
    const left = new Map<number, { readonly from: number; readonly rows: number[] }>();
    this.rows.forEach((row, index) => {
      if (row === null || !goesOn(row.answer)) return;
      const ofPrompt = left.get(row.prompt) ?? { from: Math.floor(index / this.size.answers), rows: [] };
      ofPrompt.rows.push(index);
      left.set(row.prompt, ofPrompt);
    });
    return [...left.values()];
  }
}

/** Equal blocks of an array, of which there are `count`, by their indices. Null stands for zeros. */
function blocksOf(from: Float32Array, count: number, indices: readonly (number | null)[]): Float32Array {
  const size = from.length / count;
  const out = new Float32Array(indices.length * size);
  indices.forEach((index, i) => {
    if (index !== null) out.set(from.subarray(index * size, (index + 1) * size), i * size);
  });
  return out;
}

/** Caches in arrays. Keys are kept transposed, [rows, depth, columns]. */
export class ArrayCaches implements AnswerCaches {
  readonly feeds: Record<string, Float32Array> = {};
  readonly outputs: Record<string, Float32Array> = {};
  readonly batch: number;
  readonly #depth: number;
  #length = 0;

  constructor(
    rows: number,
    private readonly config: DecoderConfig,
  ) {
    const { num_hidden_layers, num_key_value_heads, head_dim } = config;
    this.batch = rows * num_key_value_heads;
    this.#depth = head_dim;
    for (let layer = 0; layer < num_hidden_layers; layer++) {
      this.outputs[`key.${layer}`] = new Float32Array(this.batch * head_dim);
      this.outputs[`value.${layer}`] = new Float32Array(this.batch * head_dim);
    }
  }

  get length(): number {
    return this.#length;
  }

  grow(length: number): void {
    for (let layer = 0; layer < this.config.num_hidden_layers; layer++) {
      // A row of values holds its columns one after another; keys have one such row for each depth.
      this.#widen(`answer_keys.${layer}`, this.batch * this.#depth, this.#length, length);
      this.#widen(`answer_values.${layer}`, this.batch, this.#length * this.#depth, length * this.#depth);
    }
    this.#length = length;
  }

  async step(column: number, run: () => Promise<void>): Promise<void> {
    await run();
    this.#write(column);
  }

  dispose(): void {
    // The collector's.
  }

  #write(column: number): void {
    const { batch } = this;
    const depth = this.#depth;
    for (let layer = 0; layer < this.config.num_hidden_layers; layer++) {
      const keys = this.feeds[`answer_keys.${layer}`];
      const key = this.outputs[`key.${layer}`];
      for (let i = 0; i < batch * depth; i++) keys[i * this.#length + column] = key[i]!;
      const values = this.feeds[`answer_values.${layer}`];
      const value = this.outputs[`value.${layer}`];
      for (let row = 0; row < batch; row++) {
        values.set(value.subarray(row * depth, (row + 1) * depth), (row * this.#length + column) * depth);
      }
    }
  }

  /** The caches of these rows of a batch of size `from`, in the order of a batch of size `to`, and none for null. These caches are given up. */
  moved(from: BatchSize, to: BatchSize, rows: readonly (number | null)[]): ArrayCaches {
    const heads = this.config.num_key_value_heads;
    const made = new ArrayCaches(to.places * to.answers, this.config);
    // A place has its answers one after another for each head.
    const blocks = Array.from({ length: to.places * heads }, (_, i) => {
      const [place, head] = [Math.floor(i / heads), i % heads];
      return Array.from({ length: to.answers }, (__, answer) => {
        const row = rows[place * to.answers + answer];
        return row === null
          ? null
          : (Math.floor(row / from.answers) * heads + head) * from.answers + (row % from.answers);
      });
    }).flat();
    for (const [name, array] of Object.entries(this.feeds)) {
      made.feeds[name] = blocksOf(array, this.batch, blocks);
      delete this.feeds[name];
    }
    made.#length = this.#length;
    return made;
  }

  #widen(name: string, rows: number, from: number, to: number): void {
    const wide = new Float32Array(rows * to);
    const narrow = this.feeds[name] ?? wide;
    for (let row = 0; row < rows; row++) wide.set(narrow.subarray(row * from, (row + 1) * from), row * to);
    this.feeds[name] = wide;
  }
}

/** Enlarges caches, layer by layer. */
export class CacheGrowth {
  readonly #sessions: SessionCache;

  constructor(session: SessionOptions) {
    this.#sessions = new SessionCache('larger caches', { ...session, leaves: () => true });
  }

  /** Adds columns of zeros, up to `to`, to the keys [batch, depth, from] and the values [batch, from, depth] of one layer. */
  async widen(
    { keys, values }: Readonly<Record<'keys' | 'values', TensorCell>>,
    sizes: Readonly<Record<'batch' | 'depth' | 'from' | 'to', number>>,
  ): Promise<void> {
    const { batch, depth, from, to } = sizes;
    const build = (graph: Graph): Record<'keys' | 'values', Value> => ({
      keys: pad(graph.input('keys', [batch, depth, from]), 2, 0, to - from),
      values: pad(graph.input('values', [batch, from, depth]), 1, 0, to - from),
    });
    const cells = { keys, values };
    await this.#sessions.use(sizes, build, (session) => session.run(cells, undefined, cells));
  }

  dispose(): Promise<void> {
    return this.#sessions.dispose();
  }
}

/** The caches of all layers with this step's keys [batch, 1, D] and values written into the column of `written`, bool [Ta], where it is true. */
export function writtenCaches(
  { graph }: Value,
  past: readonly LayerCache[],
  step: { readonly keys: readonly Value[]; readonly values: readonly Value[] },
): Record<string, Value> {
  const [batch, depth, columns] = past[0].keysTransposed.shape;
  const written = graph.input('written', [columns], 'bool');
  return Object.fromEntries(
    past.flatMap(({ keysTransposed, values }, i) => [
      [`answer_keys.${i}`, where(written, reshape(step.keys[i], [batch, depth, 1]), keysTransposed)],
      [`answer_values.${i}`, where(reshape(written, [columns, 1]), step.values[i], values)],
    ]),
  );
}

/** Keys are [rows, depth, columns], values [rows, columns, depth]. All begin with zeros. */
export class CellCaches implements AnswerCaches {
  readonly feeds: Record<string, Fed> = {};
  readonly outputs: Record<string, TensorCell> = {};
  readonly batch: number;
  #length = 0;

  constructor(
    rows: number,
    private readonly config: DecoderConfig,
    private readonly growth: CacheGrowth,
  ) {
    this.batch = rows * config.num_key_value_heads;
  }

  get length(): number {
    return this.#length;
  }

  async grow(length: number): Promise<void> {
    const { num_hidden_layers: layers, head_dim: depth } = this.config;
    const { batch } = this;
    const from = this.#length;
    // All that is there at first is read from one array.
    const zeros = from === 0 ? new Float32Array(batch * depth * length) : null;
    for (let layer = 0; layer < layers; layer++) {
      const [keys, values] = [`answer_keys.${layer}`, `answer_values.${layer}`];
      if (zeros === null) {
        const cells = { keys: this.outputs[keys], values: this.outputs[values] };
        await this.growth.widen(cells, { batch, depth, from, to: length });
      } else {
        for (const name of [keys, values]) this.feeds[name] = this.outputs[name] = new TensorCell(zeros);
      }
    }
    this.feeds['written'] = new Uint8Array(length);
    this.#length = length;
  }

  async step(column: number, run: () => Promise<void>): Promise<void> {
    (this.feeds['written'] as Uint8Array).fill(0).fill(1, column, column + 1);
    await run();
  }

  dispose(): void {
    for (const cell of Object.values(this.outputs)) cell.dispose();
  }
}
