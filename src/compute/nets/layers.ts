/**
 * Layers over rows [N, width], with hand-derived gradients if those read memory fewer times than differentiated parts.
 */
import {
  add,
  erf,
  gather,
  gelu,
  gemm,
  layerNormalization,
  mul,
  reciprocal,
  reduceSumSquare,
  reshape,
  rmsNormalization,
  sigmoid,
  sqrt,
  sub,
  withGradient,
} from '../graph/build.js';
import { checkpoint } from '../graph/checkpoint.js';
import type { Graph, Value } from '../graph/ir.js';
import { type Adapter, productsOf, sumOf } from './lora.js';

/** x W^T + b over rows, plus the adapter's output. Weights are stored [out, in], as in Hugging Face checkpoints. */
export function linear(x: Value, name: string, out: number, bias = false, adapter?: Adapter): Value {
  const weight = x.graph.parameter(`${name}.weight`, [out, x.shape[1]]);
  return sumOf(productsOf(x, weight, name, adapter), bias ? x.graph.parameter(`${name}.bias`, [out]) : undefined);
}

/** The factor of RMSNorm, from its weight. */
const normScales = {
  weight: (weight: Value): Value => weight,
  one_plus_weight: (weight: Value): Value => add(weight, weight.graph.scalar(1)),
} as const;
export type NormScale = keyof typeof normScales;

/**
 * Root-mean-square normalization (Zhang and Sennrich, 2019): y = s x r, s the scale, r = 1 / sqrt(mean(x^2) + eps).
 * With t = x dy: ds = sum_rows r t, dx = r s dy - x r^3 mean(t s).
 */
export function rmsNorm(x: Value, name: string, eps: number, scale: NormScale = 'weight'): Value {
  const width = x.shape[1];
  const weight = normScales[scale](x.graph.parameter(`${name}.weight`, [width]));
  return withGradient(rmsNormalization(x, weight, eps), {
    name: 'rms_norm',
    inputs: [x, weight],
    gradient: (d) => {
      const meanSquare = mul(reduceSumSquare(x, [1]), x.graph.scalar(1 / width));
      const r = reciprocal(sqrt(add(meanSquare, x.graph.scalar(eps))));
      const t = mul(d, x);
      const mean = gemm(t, reshape(weight, [width, 1]), { alpha: 1 / width });
      const along = mul(mul(mean, r), mul(r, r));
      return [sub(mul(mul(d, weight), r), mul(x, along)), reshape(gemm(r, t, { transA: true }), [width])];
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

/** GEGLU's gate (Shazeer, 2020), by the approximation with tanh. */
export function geglu(gate: Value, up: Value): Value {
  return mul(gelu(gate), up);
}

/** Rows of a table [vocabulary, width] for int64 ids of any shape, flattened to [N, width]. */
export function embedding(graph: Graph, name: string, ids: Value, vocabulary: number, width: number): Value {
  return gather(graph.parameter(`${name}.weight`, [vocabulary, width]), reshape(ids, [ids.size]));
}

/** x s(x), s the logistic function. */
export function silu(x: Value): Value {
  return mul(x, sigmoid(x));
}

/** Layer normalization (Ba et al., 2016) of rows [N, width], with a weight and a bias. */
export function layerNorm(x: Value, name: string, eps: number): Value {
  const width = x.shape[1];
  const vector = (part: string): Value => x.graph.parameter(`${name}.${part}`, [width]);
  return layerNormalization(x, vector('weight'), vector('bias'), eps);
}

/** x Phi(x), Phi the normal distribution (Hendrycks and Gimpel, 2016). */
export function geluExact(x: Value): Value {
  const { graph } = x;
  const share = add(erf(mul(x, graph.scalar(Math.SQRT1_2))), graph.scalar(1));
  return mul(mul(x, graph.scalar(0.5)), share);
}

/** Quick GELU (Hendrycks and Gimpel, 2016): x s(1.702 x), s the logistic function. */
export function quickGelu(x: Value): Value {
  return mul(x, sigmoid(mul(x, x.graph.scalar(1.702))));
}

/** Wraps a block, for example to recompute it in the backward pass. */
export type BlockWrapper = (name: string, x: Value, build: (x: Value) => Value) => Value;

/** Keeps only a block's input, and recomputes the block in the backward pass. */
export const recomputed: BlockWrapper = (name, x, build) => checkpoint(name, [x], ([inner]) => build(inner));
