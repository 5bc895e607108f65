/**
 * Log-probabilities and entropies of a token distribution: softmax(logits / temperature) over a vocabulary, whole or in
 * two parts, from the products whose sum the logits are.
 * Logits of a large vocabulary are computed and discarded piece by piece: no tensor has a column for each token of the
 * vocabulary and a row for each token of the batch. Small ones are computed whole.
 */
import { InternalError } from '../../core/errors.js';
import {
  add,
  cast,
  concat,
  equal,
  exp,
  gather,
  gatherElements,
  gemm,
  greater,
  log,
  logSoftmax,
  maximum,
  minimum,
  mul,
  neg,
  range,
  reduceMax,
  reduceSum,
  reshape,
  slice,
  sub,
  where,
  withGradient,
} from '../graph/build.js';
import { computedAfter } from '../graph/checkpoint.js';
import type { Value } from '../graph/ir.js';
import { sumOf, type Product } from './lora.js';

/** A token distribution's result for one row: the log-probability of its target and the entropy of the whole distribution. */
export interface TokenDistribution {
  /** [N] log-probability of each row's target. */
  readonly logProbs: Value;
  /** [N] entropy in nats. Carries no gradient. */
  readonly entropy: Value;
}

export interface DistributionOptions {
  readonly temperature: number;
  /**
   * The id at which the vocabulary's second part begins, if a row's distribution covers only the part of its target
   * (EARL's separate language and vision vocabularies). Null if it covers all.
   */
  readonly secondPart: number | null;
  /** Whether gradients of the log-probabilities are needed. */
  readonly learning: boolean;
}

/** Vocabularies up to this size are computed whole. */
const WHOLE_VOCABULARY = 8192;
/** The target number of logits in a piece. Smaller products are slower, so a piece has at least `PIECE_COLUMNS.least` columns. */
const PIECE_ELEMENTS = 2 ** 22;
const PIECE_COLUMNS = { least: 1024, most: 8192 } as const;

/** Acts as minus infinity, but is finite. */
const NEVER = -1e9;

/** Log-probabilities of `targets`, int64 [N], and entropies, given logits [N, V] as a sum of products. */
export function tokenDistribution(
  logits: readonly Product[],
  targets: Value,
  options: DistributionOptions,
): TokenDistribution {
  const vocabulary = logits[0].table.shape[0];
  if (vocabulary > WHOLE_VOCABULARY) return inPieces(logits, targets, options);
  const { graph } = targets;
  const part =
    options.secondPart === null
      ? null
      : graph.constant(new BigInt64Array(vocabulary).fill(1n, options.secondPart), [vocabulary]);
  return wholeDistribution(sumOf(logits), targets, options.temperature, part);
}

/**
 * For each of two modalities, 0 on its tokens and a large negative number on the others': [2, V] from int64 [V] of
 * zeros and ones.
 */
function modalityMasks(modality: Value): Value {
  const { graph } = modality;
  const own = equal(reshape(range(graph, 2), [2, 1]), reshape(modality, [1, modality.size]));
  return where(own, graph.scalar(0), graph.scalar(NEVER));
}

/**
 * Log-probabilities of `targets` [N] under softmax(logits [N, V] / temperature). If `modality` int64 [V] is given (0
 * for language, 1 for vision), a row's distribution covers only the tokens of its target's modality. d logits = d
 * (one_hot(target) - softmax).
 */
export function wholeDistribution(
  logits: Value,
  targets: Value,
  temperature: number,
  modality: Value | null,
): TokenDistribution {
  const { graph } = logits;
  const [rows, vocabulary] = logits.shape as [number, number];
  const column = reshape(targets, [rows, 1]);
  const scaled = temperature === 1 ? logits : mul(logits, graph.scalar(1 / temperature));
  const visible = modality === null ? scaled : add(scaled, gather(modalityMasks(modality), gather(modality, targets)));
  const logp = logSoftmax(visible);
  const p = exp(logp);
  const picked = withGradient(gatherElements(logp, column, 1), {
    name: 'token_log_prob',
    // Directly to the logits: a masked token has probability 0 and is never the target, so its gradient is 0.
    inputs: [scaled],
    gradient: (d) => {
      const hot = cast(equal(column, reshape(range(graph, vocabulary), [1, vocabulary])), 'float32');
      return [mul(sub(hot, p), d)];
    },
  });
  return { logProbs: reshape(picked, [rows]), entropy: reshape(neg(reduceSum(mul(p, logp), [1])), [rows]) };
}

/** Columns [start, end) of the vocabulary, all of one of its parts. */
interface Piece {
  readonly start: number;
  readonly end: number;
  readonly second: boolean;
}

/** The running statistics of the softmax over the pieces so far. */
interface Partial {
  /** [N, 1] the largest logit, relative to which the others are computed, to keep precision with large logits. */
  readonly top: Value;
  /** [N, 1] log of the sum of exponentials of logits less the greatest. */
  readonly logSum: Value;
  /** [N, 1] */
  readonly entropy: Value;
  /** The mean row of the table for each product, [N, K]. Empty without gradients. */
  readonly means: readonly Value[];
}

/**
 * The softmax over all pieces is a mixture of the softmaxes over each piece, weighted by their shares of the sum of exponentials (Dao
 * et al., "FlashAttention", 2022). With x = sum_i s_i h_i W_i^T / temperature and t the target, d log p_t / d h_i = s_i / temperature
 * (W_i[t] - sum_v p_v W_i[v]). The pieces yield it, so the gradient of rows needs no logits. The gradient of a table,
 * d W_i = s_i / temperature (one_hot(target) - p)^T (d h_i), does need them, and they are computed again.
 */
function inPieces(
  logits: readonly Product[],
  targets: Value,
  { temperature, secondPart, learning }: DistributionOptions,
): TokenDistribution {
  const { graph } = targets;
  const rows = targets.size;
  const column = reshape(targets, [rows, 1]);
  const scaled = logits.map((product) => ({ ...product, scale: product.scale / temperature }));
  const pieces = piecesOf(logits[0].table.shape[0], rows, secondPart);
  /** 0 if a piece's tokens are visible to a row, otherwise NEVER: [N, 1]. Null if all are visible. */
  const hiddenOf = ({ second }: Piece): Value | null => {
    if (secondPart === null) return null;
    const seesSecond = greater(column, graph.constant(BigInt64Array.of(BigInt(secondPart - 1)), []));
    const [zero, never] = [graph.scalar(0), graph.scalar(NEVER)];
    return second ? where(seesSecond, zero, never) : where(seesSecond, never, zero);
  };
  /** A piece's products. They wait for `others`, so that pieces are computed one after another. */
  const productsOf = ({ start, end }: Piece, others: readonly Value[]): readonly Product[] =>
    scaled
      .map((product) => ({ ...product, table: slice(product.table, 0, start, end) }))
      .map((product) => ({ ...product, rows: computedAfter(product.rows, others) }));

  let whole: Partial | null = null;
  for (const piece of pieces) {
    const parts = productsOf(piece, whole === null ? [] : [whole.top, whole.logSum, whole.entropy, ...whole.means]);
    const x = sumOf(parts);
    const logp = logSoftmax(x);
    const p = exp(logp);
    const hidden = hiddenOf(piece);
    const top = reduceMax(x, [1]);
    const one: Partial = {
      top: hidden === null ? top : add(top, hidden),
      logSum: neg(reduceMax(logp, [1])),
      entropy: neg(reduceSum(mul(p, logp), [1])),
      means: learning ? parts.map(({ table }) => gemm(p, table)) : [],
    };
    whole = whole === null ? one : mixture(whole, one);
  }
  if (whole === null) throw new InternalError('a vocabulary without tokens');
  const { top, logSum, means } = whole;

  const own = scaled.map(({ table }) => gather(table, targets));
  const chosen = scaled
    .map((product, i) => mul(reduceSum(mul(product.rows, own[i]), [1]), graph.scalar(product.scale)))
    .reduce(add);
  const picked = withGradient(minimum(sub(sub(chosen, top), logSum), graph.scalar(0)), {
    name: 'token_log_prob',
    inputs: [...scaled.map((product) => product.rows), ...scaled.map(({ table }) => table)],
    gradient: (d, needed) => {
      if (!learning) throw new InternalError('log-probabilities made without gradients cannot be differentiated');
      const ofRows = scaled.map(({ scale }, i) =>
        needed[i] ? mul(sub(own[i], means[i]), mul(d, graph.scalar(scale))) : null,
      );
      const trains = scaled.map((_, i) => needed[scaled.length + i]);
      if (!trains.includes(true)) return [...ofRows, ...trains.map(() => null)];
      // Waits for `d`, so that the products are computed again instead of being kept.
      const weighted = scaled.map((product) => mul(product.rows, d));
      const gradientsOf = pieces.map((piece) => {
        const { start, end } = piece;
        const hidden = hiddenOf(piece);
        const below = sub(sumOf(productsOf(piece, [d])), hidden === null ? top : sub(top, hidden));
        const p = exp(sub(below, logSum));
        const ids = BigInt64Array.from({ length: end - start }, (_, v) => BigInt(start + v));
        const hot = cast(equal(column, graph.constant(ids, [1, ids.length])), 'float32');
        const difference = sub(hot, p);
        return scaled.map(({ scale }, i) =>
          trains[i] ? gemm(difference, weighted[i], { transA: true, alpha: scale }) : null,
        );
      });
      const ofTables = trains.map((trained, i) =>
        trained
          ? concat(
              gradientsOf.map((of) => of[i]!),
              0,
            )
          : null,
      );
      return [...ofRows, ...ofTables];
    },
  });
  return { logProbs: reshape(picked, [rows]), entropy: reshape(whole.entropy, [rows]) };
}

/** Splits a vocabulary into pieces, each within one of its parts. */
function piecesOf(vocabulary: number, rows: number, secondPart: number | null): Piece[] {
  const { least, most } = PIECE_COLUMNS;
  const columns = Math.min(most, Math.max(least, 2 ** Math.floor(Math.log2(PIECE_ELEMENTS / rows))));
  const parts = [
    { first: 0, last: secondPart ?? vocabulary, second: false },
    { first: secondPart ?? vocabulary, last: vocabulary, second: true },
  ];
  return parts.flatMap(({ first, last, second }) =>
    Array.from({ length: Math.ceil((last - first) / columns) }, (_, i) => {
      const start = first + i * columns;
      return { start, end: Math.min(start + columns, last), second };
    }),
  );
}

/** The entropy of a mixture of softmaxes over different tokens is sum_i share_i (entropy_i - log share_i). */
function mixture(a: Partial, b: Partial): Partial {
  const top = maximum(a.top, b.top);
  const [ofA, ofB] = [a, b].map((one) => add(one.logSum, sub(one.top, top)));
  const logSum = log(add(exp(ofA), exp(ofB)));
  const [logA, logB] = [sub(ofA, logSum), sub(ofB, logSum)];
  const [shareA, shareB] = [exp(logA), exp(logB)];
  return {
    top,
    logSum,
    entropy: add(mul(shareA, sub(a.entropy, logA)), mul(shareB, sub(b.entropy, logB))),
    means: a.means.map((mean, i) => add(mul(mean, shareA), mul(b.means[i], shareB))),
  };
}
