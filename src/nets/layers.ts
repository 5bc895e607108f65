/** Layers over rows [N, width], with hand-derived gradients where those read memory fewer times than differentiated parts. */
import {
  add,
  cast,
  equal,
  exp,
  gather,
  gatherElements,
  gemm,
  logSoftmax,
  mul,
  neg,
  range,
  reciprocal,
  reduceSumSquare,
  reduceSum,
  reshape,
  sigmoid,
  sqrt,
  sub,
  where,
  withGradient,
} from '../graph/build.js';
import type { Graph, Value } from '../graph/ir.js';
import { adapted, type Adapter } from './lora.js';

/** x W^T + b over rows, and what an adapter adds; weights are stored [out, in], as in Hugging Face checkpoints. */
export function linear(x: Value, name: string, out: number, bias = false, adapter?: Adapter): Value {
  const weight = x.graph.parameter(`${name}.weight`, [out, x.shape[1]]);
  const product = adapted(gemm(x, weight, { transB: true }), x, name, adapter);
  return bias ? add(product, x.graph.parameter(`${name}.bias`, [out])) : product;
}

/**
 * Root-mean-square normalisation (Zhang and Sennrich, 2019): y = w x / sqrt(mean(x^2) + eps).
 * With n = x r and t = n dy: dw = sum_rows t, dx = r (w dy - n mean(t w)).
 */
export function rmsNorm(x: Value, name: string, eps: number): Value {
  const width = x.shape[1];
  const weight = x.graph.parameter(`${name}.weight`, [width]);
  const meanSquare = mul(reduceSumSquare(x, [1]), x.graph.scalar(1 / width));
  const r = reciprocal(sqrt(add(meanSquare, x.graph.scalar(eps))));
  const n = mul(x, r);
  return withGradient(mul(n, weight), {
    name: 'rms_norm',
    inputs: [x, weight],
    gradient: (d) => {
      const t = mul(d, n);
      const mean = gemm(t, reshape(weight, [width, 1]), { alpha: 1 / width });
      return [mul(sub(mul(d, weight), mul(n, mean)), r), reshape(reduceSum(t, [0]), [width])];
    },
  });
}

/**
 * SwiGLU's gate (Shazeer, 2020): y = g s(g) u, s the logistic function.
 * du = dy g s, dg = dy u s (1 + g (1 - s)).
 */
export function swiglu(gate: Value, up: Value): Value {
  const s = sigmoid(gate);
  const activated = mul(gate, s);
  return withGradient(mul(activated, up), {
    name: 'swiglu',
    inputs: [gate, up],
    gradient: (d) => {
      const slope = add(s, sub(activated, mul(activated, s)));
      return [mul(mul(d, up), slope), mul(d, activated)];
    },
  });
}

/** Rows of a table [vocabulary, width] for int64 ids of any shape, flattened to [N, width]. */
export function embedding(graph: Graph, name: string, ids: Value, vocabulary: number, width: number): Value {
  return gather(graph.parameter(`${name}.weight`, [vocabulary, width]), reshape(ids, [ids.size]));
}

/** What the distribution of a token says about one row: its log-probability and the entropy of the whole. */
export interface TokenDistribution {
  /** [N] log-probability of each row's target. */
  readonly logProbs: Value;
  /** [N] entropy in nats; carries no gradient. */
  readonly entropy: Value;
}

/** For each of two modalities, 0 on its tokens and a large negative number on the others': [2, V] from int64 [V] of zeros and ones. */
function modalityMasks(modality: Value): Value {
  const { graph } = modality;
  const own = equal(reshape(range(graph, 2), [2, 1]), reshape(modality, [1, modality.size]));
  return where(own, graph.scalar(0), graph.scalar(-1e9));
}

/**
 * Log-probabilities of `targets` [N] under softmax(logits [N, V] / temperature). With `modality` int64 [V] given, 0 for language
 * and 1 for vision, a row's distribution is over the tokens of its target's modality alone (EARL's separate language and vision vocabularies).
 * d logits = d (one_hot(target) - softmax).
 */
export function tokenDistribution(
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
    // Straight to the logits: a masked token has probability 0 and is never the target, so that its gradient is 0 by itself.
    inputs: [scaled],
    gradient: (d) => {
      const hot = cast(equal(column, reshape(range(graph, vocabulary), [1, vocabulary])), 'float32');
      return [mul(sub(hot, p), d)];
    },
  });
  return { logProbs: reshape(picked, [rows]), entropy: reshape(neg(reduceSum(mul(p, logp), [1])), [rows]) };
}
