/**
 * The batch of answers that decode together. Each place has several answers of one prompt, with caches for prompt and
 * answers. Finished answers may leave the batch, and the remaining ones then move together.
 */
import { InternalError } from '../../../core/errors.js';
import type { TensorBinding, SessionOptions } from '../../../compute/onnx/session.js';
import { TensorCell } from '../../../compute/onnx/tensors.js';
import { headsOf } from '../../../compute/nets/decoder/heads.js';
import type { DecoderConfig } from '../../../compute/nets/decoder/config.js';
import { SessionCache } from '../../../compute/onnx/session_cache.js';
import { pad, reshape, where } from '../../../compute/graph/build.js';
import type { Graph, Value } from '../../../compute/graph/ir.js';
import type { LayerCache } from '../../../compute/nets/decoder/inputs.js';

/** Number of places, and of answers (all of one prompt) in each place. */
export interface BatchSize {
  readonly places: number;
  readonly answers: number;
}

/** Columns of the caches of prompts and of answers. */
interface Columns {
  readonly prompt: number;
  readonly answer: number;
}

/** Fewer rows save hardly any time, because a step reads all weights anyway. */
const MIN_ROWS = 8;
/** A batch shrinks if at least this share of its rows is unused. */
const LEFT_OVER = 1 / 4;
/** Answers share their prompt's cache if that leaves at most this share of rows empty. */
const EMPTY_FOR_SHARING = 1 / 8;

/** Rounds up to a power of two or three quarters of one, so that few different graphs are compiled. */
function roundRows(rows: number): number {
  const power = 2 ** Math.ceil(Math.log2(rows));
  const between = (3 * power) / 4;
  return Math.max(MIN_ROWS, rows <= between ? between : power);
}

/**
 * The size of a smaller batch for the remaining answers of each prompt (`left`). Null if shrinking does not pay.
 * A smaller batch has at least a quarter fewer rows, and its caches are not larger. Prompts' caches are repeated if
 * answers of one prompt take several places.
 */
export function smallerBatch(
  left: readonly number[],
  now: BatchSize,
  columns: Columns,
  /**
   * Query heads per answer. Products with a single row round differently, so every place needs at least two rows:
   * answers times this number.
   */
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

/** The row of one answer: the indices of the answer and of its prompt. */
interface Row {
  readonly answer: number;
  readonly prompt: number;
}

/** The answers' caches. They gain one column per step and grow as needed. */
export interface AnswerCaches {
  /** Rows times key and value heads. */
  readonly batch: number;
  /** Number of allocated columns. */
  readonly length: number;
  /** A step's inputs by name. */
  readonly feeds: Readonly<Record<string, TensorBinding>>;
  /** Buffers for a step's outputs by name. */
  readonly outputs: Readonly<Record<string, TensorBinding>>;
  /** Makes room for `length` columns and keeps the filled ones. */
  grow(length: number): void | Promise<void>;
  /** Runs a step and stores its keys and values in this column. */
  step(column: number, run: () => Promise<void>): Promise<void>;
  /** Frees memory on a device. */
  dispose(): void;
}

/**
 * The rows and caches of a batch, by layer.
 * Keys and values of prompts are [places, K, D, Tp] and [places, K, Tp, D]. Those of answers are [places * K * answers,
 * D, Ta] and [places * K * answers, Ta, D].
 */
export class DecodingBatch {
  /** The prompt of each place. A place without answers may have any prompt. */
  prompts: readonly number[];
  /** The answers of each place, one place after another. Null for an empty row. */
  rows: readonly (Row | null)[];
  readonly promptCaches: Record<string, TensorBinding>;

  constructor(
    private readonly config: DecoderConfig,
    private readonly promptColumns: number,
    promptCaches: Readonly<Record<string, TensorBinding>>,
    public size: BatchSize,
    /** Number of prompts. They have the first places, in order. */
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

  /** Expands columns of all prompts to the places' prompts. */
  ofPlaces(columns: Float32Array): Float32Array {
    return blocksOf(columns, columns.length / this.promptColumns, this.prompts);
  }

  /** The size of a smaller batch for the answers that continue. Null if shrinking does not pay. */
  smaller(continues: (answer: number) => boolean): BatchSize | null {
    const counts = this.#left(continues).map(({ rows }) => rows.length);
    if (counts.length === 0) return null;
    return smallerBatch(counts, this.size, this.columns, headsOf(this.config).queriesPerHead);
  }

  /**
   * Moves the answers that continue into a smaller batch if that pays. Returns whether it did.
   * Frees each array before it allocates the next, so that caches exist twice only if another reference holds them.
   * Raises InternalError for caches in cells.
   */
  shrink(continues: (answer: number) => boolean): boolean {
    const next = this.smaller(continues);
    if (next === null) return false;
    const places = this.#left(continues).flatMap(({ from, rows }) =>
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

  /** Frees memory on a device. */
  dispose(): void {
    for (const cache of Object.values(this.promptCaches)) if (cache instanceof TensorCell) cache.dispose();
    this.caches.dispose();
  }

  /** By prompt: one of its places, and the rows of its answers that continue. */
  #left(
    continues: (answer: number) => boolean,
  ): readonly { readonly from: number; readonly rows: readonly number[] }[] {
    const left = new Map<number, { readonly from: number; readonly rows: number[] }>();
    this.rows.forEach((row, index) => {
      if (row === null || !continues(row.answer)) return;
      const ofPrompt = left.get(row.prompt) ?? { from: Math.floor(index / this.size.answers), rows: [] };
      ofPrompt.rows.push(index);
      left.set(row.prompt, ofPrompt);
    });
    return [...left.values()];
  }
}

/** Selects blocks by index from an array of `count` equal blocks. Null gives zeros. */
function blocksOf(from: Float32Array, count: number, indices: readonly (number | null)[]): Float32Array {
  const size = from.length / count;
  const out = new Float32Array(indices.length * size);
  indices.forEach((index, i) => {
    if (index !== null) out.set(from.subarray(index * size, (index + 1) * size), i * size);
  });
  return out;
}

/** Caches in arrays of this process. Keys are transposed: [rows, depth, columns]. */
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
      // A row of values stores its columns one after another. Keys have one such row per depth.
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
    // Freed by the garbage collector.
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

  /**
   * Moves rows of a batch of size `from` to the order of a batch of size `to`. Null gives an empty row. The old caches
   * must not be used afterwards.
   */
  moved(from: BatchSize, to: BatchSize, rows: readonly (number | null)[]): ArrayCaches {
    const heads = this.config.num_key_value_heads;
    const made = new ArrayCaches(to.places * to.answers, this.config);
    // Within a place, each head has its answers one after another.
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

/** Enlarges caches layer by layer on a device. */
export class CacheGrowth {
  readonly #sessions: SessionCache;

  constructor(session: SessionOptions) {
    this.#sessions = new SessionCache('larger caches', { ...session, leaves: () => true });
  }

  /**
   * Appends columns of zeros up to `to` to the keys [batch, depth, from] and values [batch, from, depth] of a layer.
   */
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

/**
 * The caches of all layers, with this step's keys [batch, 1, D] and values written to the column at which `written`,
 * bool [Ta], is true.
 */
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

/** Caches in cells on a device: keys [rows, depth, columns], values [rows, columns, depth]. They begin with zeros. */
export class CellCaches implements AnswerCaches {
  readonly feeds: Record<string, TensorBinding> = {};
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
    // One array initializes all caches.
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
