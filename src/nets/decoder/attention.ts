/**
 * Attention for prompts that several answers share. A batch has P prompts of Tp columns (padded on the left) and G answers of Ta
 * columns for each; a prompt's keys and values are computed once and read by all its answers.
 *
 * Axis letters: P prompts, G answers of a prompt, Tp and Ta columns, K key/value heads, R query heads per key/value head, D depth.
 * Rows are laid out [P, T] or [P, G, T]; keys and values are kept [P, K, …], so that sharing needs no copy.
 */
import { add, concat, matMul, mul, reduceSum, reshape, rotary, slice, softmax, transpose } from '../../graph/build.js';
import type { Graph, Value } from '../../graph/ir.js';
import type { DecoderConfig } from './config.js';

/** A large negative number instead of minus infinity: a row of padding whose keys are all masked stays finite. */
const MASKED = -1e9;

export interface Heads {
  readonly keyValueHeads: number;
  readonly queriesPerHead: number;
  readonly depth: number;
}

export function headsOf(config: DecoderConfig): Heads {
  return {
    keyValueHeads: config.num_key_value_heads,
    queriesPerHead: config.num_attention_heads / config.num_key_value_heads,
    depth: config.head_dim,
  };
}

/** Cosines and sines [columns, depth / 2], queries' scaled by 1/sqrt(depth) so that scores need no pass of their own. */
export class RotaryTables {
  readonly #cos: Value;
  readonly #sin: Value;
  readonly #scaledCos: Value;
  readonly #scaledSin: Value;
  readonly #graph: Graph;

  constructor(graph: Graph, config: DecoderConfig, columns: number) {
    this.#graph = graph;
    const half = config.head_dim / 2;
    const angles = rotaryAngles(config, columns);
    const scale = 1 / Math.sqrt(config.head_dim);
    const table = (f: (angle: number) => number): Value =>
      graph.constant(Float32Array.from(angles, f), [columns, half]);
    this.#cos = table(Math.cos);
    this.#sin = table(Math.sin);
    this.#scaledCos = table((angle) => scale * Math.cos(angle));
    this.#scaledSin = table((angle) => scale * Math.sin(angle));
  }

  /** Rotates keys [N, heads, T, D] by the columns `first`, `first` + 1, … */
  keys(x: Value, first: number | Value): Value {
    return rotary(x, this.#cos, this.#sin, this.#positions(x, first));
  }

  /** Rotates and scales queries [N, heads, T, D]. */
  queries(x: Value, first: number | Value): Value {
    return rotary(x, this.#scaledCos, this.#scaledSin, this.#positions(x, first));
  }

  #positions(x: Value, first: number | Value): Value {
    if (typeof first !== 'number') return first;
    const [count, , length] = x.shape as [number, number, number, number];
    const data = BigInt64Array.from({ length: count * length }, (_, i) => BigInt(first + (i % length)));
    return this.#graph.constant(data, [count, length]);
  }
}

/** theta^(-2i/d) times the column (Su et al., 2021), row by row. */
function rotaryAngles(config: DecoderConfig, columns: number): number[] {
  const half = config.head_dim / 2;
  return Array.from({ length: columns * half }, (_, i) => {
    return Math.floor(i / half) * config.rope_theta ** (-(2 * (i % half)) / config.head_dim);
  });
}

/** 0 where column `key` is not later than column `query`, else MASKED: [queries per head * T, T]. */
export function causalMask(graph: Graph, queriesPerHead: number, length: number): Value {
  const data = new Float32Array(queriesPerHead * length * length);
  for (let r = 0; r < queriesPerHead; r++) {
    for (let query = 0; query < length; query++) {
      for (let key = query + 1; key < length; key++) data[(r * length + query) * length + key] = MASKED;
    }
  }
  return graph.constant(data, [queriesPerHead * length, length]);
}

/** Rows [P * T, K * D] to keys or values [P, K, T, D]. */
export function promptHeads(rows: Value, prompts: number, { keyValueHeads, depth }: Heads): Value {
  const length = rows.shape[0] / prompts;
  return transpose(reshape(rows, [prompts, length, keyValueHeads, depth]), [0, 2, 1, 3]);
}

/** Query rows [P * T, K * R * D] to [P * K, R, T, D]. */
export function promptQueries(
  rows: Value,
  prompts: number,
  { keyValueHeads: k, queriesPerHead: r, depth }: Heads,
): Value {
  const length = rows.shape[0] / prompts;
  const split = transpose(reshape(rows, [prompts, length, k, r, depth]), [0, 2, 3, 1, 4]);
  return reshape(split, [prompts * k, r, length, depth]);
}

/** Rows [P * G * T, K * D] to keys or values [P * K * G, 1, T, D]. */
export function answerHeads(rows: Value, prompts: number, answers: number, { keyValueHeads: k, depth }: Heads): Value {
  const length = rows.shape[0] / (prompts * answers);
  const split = transpose(reshape(rows, [prompts, answers, length, k, depth]), [0, 3, 1, 2, 4]);
  return reshape(split, [prompts * k * answers, 1, length, depth]);
}

/** Query rows [P * G * T, K * R * D] to [P * K * G, R, T, D]. */
export function answerQueries(rows: Value, prompts: number, answers: number, heads: Heads): Value {
  const { keyValueHeads: k, queriesPerHead: r, depth } = heads;
  const length = rows.shape[0] / (prompts * answers);
  const split = transpose(reshape(rows, [prompts, answers, length, k, r, depth]), [0, 3, 1, 4, 2, 5]);
  return reshape(split, [prompts * k * answers, r, length, depth]);
}

/** The reverse of `answerQueries`: [P * K * G, R * T, D] to rows [P * G * T, K * R * D]. */
export function answerRows(x: Value, prompts: number, answers: number, heads: Heads): Value {
  const { keyValueHeads: k, queriesPerHead: r, depth } = heads;
  const length = x.shape[1] / r;
  const split = transpose(reshape(x, [prompts, k, answers, r, length, depth]), [0, 2, 4, 1, 3, 5]);
  return reshape(split, [prompts * answers * length, k * r * depth]);
}

/** Swaps the last two axes. */
export function swapped(x: Value): Value {
  const rank = x.shape.length;
  return transpose(x, [...Array.from({ length: rank - 2 }, (_, axis) => axis), rank - 1, rank - 2]);
}

/**
 * Prompts attending to themselves: queries [P * K, R, Tp, D], keys and values [P, K, Tp, D], the mask of padding [P, 1, 1, Tp].
 * Returns rows [P * Tp, K * R * D].
 */
export function attendPrompts(
  queries: Value,
  keys: Value,
  values: Value,
  padding: Value,
  causal: Value,
  heads: Heads,
): Value {
  const [prompts, k, length, depth] = keys.shape as [number, number, number, number];
  const r = heads.queriesPerHead;
  const scores = matMul(reshape(queries, [prompts, k, r * length, depth]), swapped(keys));
  const mixed = matMul(softmax(add(scores, add(padding, causal))), values);
  const split = transpose(reshape(mixed, [prompts, k, r, length, depth]), [0, 3, 1, 2, 4]);
  return reshape(split, [prompts * length, k * r * depth]);
}

/** What an answer's queries see besides the shared prompt: groups of keys transposed [P * K * G, D, T], values and a mask. */
export interface Seen {
  readonly keysTransposed: Value;
  readonly values: Value;
  /** Added to the scores [P * K * G, R * T, columns], by broadcasting; null for none. */
  readonly mask: Value | null;
}

/**
 * Answers attending to their prompt and to `seen`: queries [P * K * G, R, T, D]; the prompt's keys transposed [P, K, D, Tp] and
 * values [P, K, Tp, D]. One softmax over all columns. Returns rows [P * G * T, K * R * D].
 */
export function attendAnswers(
  queries: Value,
  prompt: { readonly keysTransposed: Value; readonly values: Value; readonly padding: Value },
  seen: readonly Seen[],
  heads: Heads,
): Value {
  const [prompts, k, , promptColumns] = prompt.keysTransposed.shape as [number, number, number, number];
  const [batch, r, length, depth] = queries.shape as [number, number, number, number];
  const answers = batch / (prompts * k);
  const rows = r * length;
  const perPrompt = reshape(queries, [prompts, k, answers * rows, depth]);
  const own = reshape(queries, [batch, rows, depth]);
  const parts = [reshape(add(matMul(perPrompt, prompt.keysTransposed), prompt.padding), [batch, rows, promptColumns])];
  for (const { keysTransposed, mask } of seen) {
    const scores = scoresOf(own, keysTransposed);
    parts.push(mask === null ? scores : add(scores, mask));
  }
  const weights = softmax(concat(parts, 2));
  const promptWeights = reshape(slice(weights, 2, 0, promptColumns), [prompts, k, answers * rows, promptColumns]);
  let mixed = reshape(matMul(promptWeights, prompt.values), [batch, rows, depth]);
  let column = promptColumns;
  for (const { values } of seen) {
    const end = column + values.shape[1];
    mixed = add(mixed, mixtureOf(slice(weights, 2, column, end), values));
    column = end;
  }
  return answerRows(mixed, prompts, answers, heads);
}

/** Queries [N, rows, D] against keys transposed [N, D, columns]; a single column needs no matrix product. */
function scoresOf(queries: Value, keysTransposed: Value): Value {
  const [batch, depth, columns] = keysTransposed.shape as [number, number, number];
  if (columns > 1) return matMul(queries, keysTransposed);
  return reduceSum(mul(queries, reshape(keysTransposed, [batch, 1, depth])), [2]);
}

/** Values [N, columns, D] mixed by weights [N, rows, columns]. */
function mixtureOf(weights: Value, values: Value): Value {
  return values.shape[1] === 1 ? mul(weights, values) : matMul(weights, values);
}
