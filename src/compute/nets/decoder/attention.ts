/**
 * Attention for prompts that several answers share. A batch has P prompts of Tp columns (padded on the left) and G answers of Ta
 * columns for each. The keys and values of a prompt are computed once for all its answers.
 *
 * Axis letters: P prompts, G answers of a prompt, Tp and Ta columns, K key/value heads, R query heads per key/value head, D depth.
 * Queries, keys and values are kept [P, K, …] (see heads.ts), so that sharing needs no copy.
 */
import {
  add,
  concat,
  expand,
  greater,
  less,
  log,
  matMul,
  minimum,
  mul,
  reduceMax,
  reduceSum,
  reshape,
  rotary,
  sigmoid,
  slice,
  softmax,
  sub,
  transpose,
  where,
  withGradient,
} from '../../graph/build.js';
import type { Graph, Value } from '../../graph/ir.js';
import { rotations, hasSlidingWindow, type DecoderConfig } from './config.js';
import { rotationOf, type RotarySettings } from './rope.js';
import type { GivenAngles } from './inputs.js';

/** A large negative number instead of minus infinity: a row of padding whose keys are all masked stays finite. */
const MASKED = -1e9;

/**
 * Rotates queries and keys by their positions. Queries are also scaled by 1/sqrt(depth), or by the model's own factor,
 * so that scores need no separate pass.
 */
export interface Rotary {
  /** Turns keys [N, heads, T, D] by the columns `first`, `first` + 1, …, or by rows of the tables, int64 [N, T]. */
  keys(x: Value, first: number | Value): Value;
  /** Turns and scales queries [N, heads, T, D]. */
  queries(x: Value, first: number | Value): Value;
}

/** The rotation of each layer, by columns or by the graph's positions of each column of each prompt. */
export function rotaryOf(
  graph: Graph,
  config: DecoderConfig,
  columns: number,
  given: GivenAngles | null,
): (layer: number) => Rotary {
  const scale = 1 / Math.sqrt(config.query_pre_attn_scalar ?? config.head_dim);
  if (given !== null) {
    const rotary = new PromptAngles(scale, given);
    return () => rotary;
  }
  // Computed at once: a layer's first use may be within a checkpointed block, whose inner values other layers cannot
  // use.
  const { usual, sliding } = rotations(config);
  const all = new ColumnAngles(graph, usual, columns, scale);
  const ofWindows = sliding === usual ? all : new ColumnAngles(graph, sliding, columns, scale);
  return (layer) => (hasSlidingWindow(config, layer) ? ofWindows : all);
}

/**
 * x [N, heads, T, D] with its first elements rotated, as many as the tables turn. The others are multiplied by `scale`,
 * which the tables contain. Null: 1.
 */
function turned(x: Value, cos: Value, sin: Value, positions: Value, scale: number | null): Value {
  const [width, depth] = [2 * cos.shape[1], x.shape[3]];
  const first = rotary(slice(x, 3, 0, width), cos, sin, positions);
  if (width === depth) return first;
  const rest = slice(x, 3, width, depth);
  return concat([first, scale === null ? rest : mul(rest, x.graph.scalar(scale))], 3);
}

/** Cosines and sines [columns, rotated width / 2], queries' scaled. */
class ColumnAngles implements Rotary {
  readonly #cos: Value;
  readonly #sin: Value;
  readonly #scaledCos: Value;
  readonly #scaledSin: Value;
  readonly #scale: number;
  readonly #graph: Graph;

  constructor(graph: Graph, settings: RotarySettings, columns: number, scale: number) {
    this.#graph = graph;
    this.#scale = scale;
    const half = settings.head_dim / 2;
    const { frequencies, magnitude } = rotationOf(settings);
    const table = (f: (angle: number) => number, factor: number): Value => {
      const data = Float32Array.from({ length: columns * half }, (_, i) => {
        return factor * f(Math.floor(i / half) * frequencies[i % half]);
      });
      return graph.constant(data, [columns, half]);
    };
    this.#cos = table(Math.cos, magnitude);
    this.#sin = table(Math.sin, magnitude);
    this.#scaledCos = table(Math.cos, scale * magnitude);
    this.#scaledSin = table(Math.sin, scale * magnitude);
  }

  keys(x: Value, first: number | Value): Value {
    return turned(x, this.#cos, this.#sin, this.#positions(x, first), null);
  }

  queries(x: Value, first: number | Value): Value {
    return turned(x, this.#scaledCos, this.#scaledSin, this.#positions(x, first), this.#scale);
  }

  #positions(x: Value, first: number | Value): Value {
    return typeof first === 'number' ? rowNumbers(this.#graph, x, (_, column) => first + column) : first;
  }
}

/** For x [N, heads, T, D] in the order of the prompts: the table row of each position, int64 [N, T]. */
function rowNumbers(graph: Graph, x: Value, row: (sequence: number, column: number) => number): Value {
  const [count, , length] = x.shape as [number, number, number];
  const data = BigInt64Array.from({ length: count * length }, (_, i) =>
    BigInt(row(Math.floor(i / length), i % length)),
  );
  return graph.constant(data, [count, length]);
}

class PromptAngles implements Rotary {
  readonly #scale: Value;
  readonly #graph: Graph;

  constructor(
    scale: number,
    private readonly given: GivenAngles,
  ) {
    this.#graph = given.cos.graph;
    this.#scale = this.#graph.scalar(scale);
  }

  keys(x: Value, first: number | Value): Value {
    const { cos, sin, prompts, columns } = this.given;
    const perPrompt = x.shape[0] / prompts;
    const rows =
      typeof first === 'number'
        ? rowNumbers(this.#graph, x, (n, column) => Math.floor(n / perPrompt) * columns + first + column)
        : first;
    return rotary(x, cos, sin, rows);
  }

  queries(x: Value, first: number | Value): Value {
    return mul(this.keys(x, first), this.#scale);
  }
}

/**
 * 0 where column `key` is not later than column `query` and less than `window` columns before it (null: however early), else MASKED:
 * [queries per head * T, T].
 */
export function causalMask(graph: Graph, queriesPerHead: number, length: number, window: number | null = null): Value {
  const keys = columnNumbers(graph, length, 0, [1, length]);
  const queries = (first: number): Value => columnNumbers(graph, length, first, [length, 1]);
  const later = masked(greater(keys, queries(0)));
  const mask = window === null ? later : minimum(later, masked(less(keys, queries(1 - window))));
  return reshape(expand(mask, [queriesPerHead, length, length]), [queriesPerHead * length, length]);
}

/** For answers' queries [answers * queries per head * T]: the prompt columns that their window still reaches, as 0 or MASKED, [rows, Tp]. */
export function promptWindowMask(
  graph: Graph,
  rows: number,
  { promptColumns, answerColumns }: { readonly promptColumns: number; readonly answerColumns: number },
  window: number,
): Value {
  const keys = columnNumbers(graph, promptColumns, 0, [1, promptColumns]);
  const firstSeen = columnNumbers(graph, answerColumns, promptColumns - window + 1, [answerColumns, 1]);
  const mask = masked(less(keys, firstSeen));
  return reshape(expand(mask, [rows / answerColumns, answerColumns, promptColumns]), [rows, promptColumns]);
}

/** `first`, `first` + 1, …: masks are computed from these, since constants of their own size would grow with the square of a context. */
function columnNumbers(graph: Graph, count: number, first: number, shape: readonly number[]): Value {
  const numbers = BigInt64Array.from({ length: count }, (_, i) => BigInt(first + i));
  return reshape(graph.constant(numbers, [count]), shape);
}

function masked(hidden: Value): Value {
  const { graph } = hidden;
  return where(hidden, graph.scalar(MASKED), graph.scalar(0));
}

/** Swaps the last two axes. */
export function swapLastAxes(x: Value): Value {
  const rank = x.shape.length;
  return transpose(x, [...Array.from({ length: rank - 2 }, (_, axis) => axis), rank - 1, rank - 2]);
}

/** Keys and values [..., T, D], and a mask that broadcasts over the scores [..., rows, T]. Null for none. */
export interface AttentionInput {
  readonly keys: Value;
  readonly values: Value;
  readonly mask: Value | null;
}

/** Scores, their softmax, and the values mixed by it, for queries [..., rows, D]. */
function attend(
  queries: Value,
  { keys, values, mask }: AttentionInput,
): { scores: Value; weights: Value; mixed: Value } {
  const products = matMul(queries, swapLastAxes(keys));
  const scores = mask === null ? products : add(products, mask);
  const weights = softmax(scores);
  return { scores, weights, mixed: matMul(weights, values) };
}

/**
 * Gradients of queries, keys and values. A softmax's gradient is w (dw - sum(w dw)), where sum(w dw) = d . mixture (Dao
 * et al., "FlashAttention", 2022). `inner` is that sum [..., rows, 1]. The mixture gives it more cheaply than the
 * weights.
 */
function attendGradient(
  queries: Value,
  { keys, values }: AttentionInput,
  weights: Value,
  d: Value,
  inner: Value,
): [Value, Value, Value] {
  const dScores = mul(sub(matMul(d, swapLastAxes(values)), inner), weights);
  return [matMul(dScores, keys), matMul(swapLastAxes(dScores), queries), matMul(swapLastAxes(weights), d)];
}

/** One softmax over all columns, for queries [..., rows, D]: values mixed, of the same shape. */
export function attendAll(queries: Value, attended: AttentionInput): Value {
  const { weights, mixed } = attend(queries, attended);
  return withGradient(mixed, {
    name: 'attend',
    inputs: [queries, attended.keys, attended.values],
    gradient: (d) => attendGradient(queries, attended, weights, d, innerProduct(d, mixed)),
  });
}

/** d . mixture for each row. */
function innerProduct(d: Value, mixed: Value): Value {
  return reduceSum(mul(d, mixed), [d.shape.length - 1]);
}

/**
 * Prompts attending to themselves: queries [P * K, R, Tp, D], keys and values [P, K, Tp, D], the mask of padding [P, 1,
 * 1, Tp]. Returns heads [P, K, R * Tp, D].
 */
export function attendPrompts(queries: Value, keys: Value, values: Value, padding: Value, causal: Value): Value {
  const [prompts, k, length, depth] = keys.shape as [number, number, number, number];
  const r = queries.shape[1];
  const own = reshape(queries, [prompts, k, r * length, depth]);
  return attendAll(own, { keys, values, mask: add(padding, causal) });
}

/**
 * Lets whole answers attend to their prompt and to themselves. Queries are [P * K * G, R, T, D], the prompt's keys and
 * values [P, K, Tp, D], and the answers' [P * K * G, T, D]. Returns heads [P * K * G, R * T, D].
 *
 * The result equals one softmax over the columns of both, without joined scores. Each part has its own softmax, weighted by
 * its share of the whole exponential sum: share = s(log sum_prompt - log sum_answer) with the logistic function s.
 */
export function attendSequences(queries: Value, prompt: AttentionInput, answer: AttentionInput): Value {
  const [prompts, k] = prompt.keys.shape as [number, number];
  const [batch, r, length, depth] = queries.shape as [number, number, number, number];
  const rows = r * length;
  const answers = batch / (prompts * k);
  const shared = [prompts, k, answers * rows, depth];
  const apart = [batch, rows, depth];
  const sharedQueries = reshape(queries, shared);
  const ownQueries = reshape(queries, apart);
  const a = attend(sharedQueries, prompt);
  const b = attend(ownQueries, answer);
  const share = sigmoid(sub(reshape(logSumExp(a), [batch, rows, 1]), logSumExp(b)));
  const mixed = add(b.mixed, mul(share, sub(reshape(a.mixed, apart), b.mixed)));
  return withGradient(mixed, {
    name: 'attend_sequences',
    inputs: [queries, prompt.keys, prompt.values, answer.keys, answer.values],
    gradient: (d) => {
      const inner = innerProduct(d, mixed);
      const [dShared, innerShared] = [mul(d, share), mul(inner, share)];
      const [dq, dKeys, dValues] = attendGradient(
        sharedQueries,
        prompt,
        a.weights,
        reshape(dShared, shared),
        reshape(innerShared, [prompts, k, answers * rows, 1]),
      );
      const [dqOwn, dKeysOwn, dValuesOwn] = attendGradient(
        ownQueries,
        answer,
        b.weights,
        sub(d, dShared),
        sub(inner, innerShared),
      );
      return [reshape(add(reshape(dq, apart), dqOwn), queries.shape), dKeys, dValues, dKeysOwn, dValuesOwn];
    },
  });
}

/** log sum exp of scores, from the greatest score and its softmax, which is never small. */
function logSumExp({ scores, weights }: { readonly scores: Value; readonly weights: Value }): Value {
  const last = [scores.shape.length - 1];
  return sub(reduceMax(scores, last), log(reduceMax(weights, last)));
}

/**
 * The keys and values of an answer in addition to the shared prompt: groups of transposed keys [P * K * G, D, T], values and a
 * mask.
 */
export interface AnswerContext {
  readonly keysTransposed: Value;
  readonly values: Value;
  /** Broadcasts over the scores [P * K * G, R * T, columns]. Null for none. */
  readonly mask: Value | null;
}

/**
 * Lets the answers' latest tokens attend to their prompt and to `seen`, for decoding. Queries are [P * K * G, R, T, D], the prompt's keys transposed [P, K, D, Tp] and
 * values [P, K, Tp, D]. One softmax over all columns. Returns heads [P * K * G, R * T, D].
 */
export function attendAnswers(
  queries: Value,
  prompt: { readonly keysTransposed: Value; readonly values: Value; readonly padding: Value },
  seen: readonly AnswerContext[],
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
  return mixed;
}

/** Queries [N, rows, D] against keys transposed [N, D, columns]. A single column needs no matrix product. */
function scoresOf(queries: Value, keysTransposed: Value): Value {
  const [batch, depth, columns] = keysTransposed.shape as [number, number, number];
  if (columns > 1) return matMul(queries, keysTransposed);
  return reduceSum(mul(queries, reshape(keysTransposed, [batch, 1, depth])), [2]);
}

/** Values [N, columns, D] mixed by weights [N, rows, columns]. */
function mixtureOf(weights: Value, values: Value): Value {
  return values.shape[1] === 1 ? mul(weights, values) : matMul(weights, values);
}
