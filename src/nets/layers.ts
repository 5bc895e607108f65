/** Layers over rows [N, width], with hand-derived gradients where those read memory fewer times than differentiated parts. */
import {
  add,
  gather,
  gemm,
  mul,
  reciprocal,
  reduceMean,
  reduceSumSquare,
  reduceSum,
  reshape,
  sigmoid,
  sqrt,
  sub,
  withGradient,
} from '../graph/build.js';
import type { Graph, Value } from '../graph/ir.js';
import { productsOf, type Adapter } from './lora.js';
import { sumOf } from './product.js';

/** x W^T + b over rows, and what an adapter adds; weights are stored [out, in], as in Hugging Face checkpoints. */
export function linear(x: Value, name: string, out: number, bias = false, adapter?: Adapter): Value {
  const weight = x.graph.parameter(`${name}.weight`, [out, x.shape[1]]);
  const product = sumOf(productsOf(x, weight, name, adapter));
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

/** x s(x), s the logistic function. */
export function silu(x: Value): Value {
  return mul(x, sigmoid(x));
}

/** 2 sqrt(2 / pi), and that times 0.044715. */
const GELU_LINEAR = 2 * Math.sqrt(2 / Math.PI);
const GELU_CUBIC = 0.044715 * GELU_LINEAR;

/**
 * GELU by its tanh approximation (Hendrycks and Gimpel, 2016): y = x s(x p), p = a + b x^2, s the logistic function, which is x (1 + tanh(x p / 2)) / 2.
 * dy/dx = s + (y - y s) (3 p - 2 a).
 */
export function gelu(x: Value): Value {
  const { graph } = x;
  const p = add(mul(mul(x, x), graph.scalar(GELU_CUBIC)), graph.scalar(GELU_LINEAR));
  const s = sigmoid(mul(x, p));
  const y = mul(x, s);
  return withGradient(y, {
    name: 'gelu',
    inputs: [x],
    gradient: (d) => {
      const steepness = sub(mul(p, graph.scalar(3)), graph.scalar(2 * GELU_LINEAR));
      return [mul(d, add(s, mul(sub(y, mul(y, s)), steepness)))];
    },
  });
}

/** Rows of a last axis with mean 0 and variance 1, and what they were multiplied by, [..., 1]. */
export interface Standardised {
  readonly rows: Value;
  readonly factor: Value;
}

/** n = (x - mean) r along the last axis, r = 1 / sqrt(variance + eps). It has no gradient of its own. */
export function standardised(x: Value, eps: number): Standardised {
  const last = x.shape.length - 1;
  const centred = sub(x, reduceMean(x, [last]));
  const variance = mul(reduceSumSquare(centred, [last]), x.graph.scalar(1 / x.shape[last]));
  const factor = reciprocal(sqrt(add(variance, x.graph.scalar(eps))));
  return { rows: mul(centred, factor), factor };
}

/** From n's gradient and the means along the last axis of it and of its products with n: dx = r (dn - mean(dn) - n mean(n dn)). */
export function standardisedGradient(
  { rows, factor }: Standardised,
  d: Value,
  means: { readonly d: Value; readonly product: Value },
): Value {
  return mul(sub(sub(d, means.d), mul(rows, means.product)), factor);
}

/** Layer normalisation (Ba et al., 2016) of rows [N, width]: y = w n + b, n their standardised elements. */
export function layerNorm(x: Value, name: string, eps: number): Value {
  const width = x.shape[1];
  const weight = x.graph.parameter(`${name}.weight`, [width]);
  const bias = x.graph.parameter(`${name}.bias`, [width]);
  const standard = standardised(x, eps);
  return withGradient(add(mul(standard.rows, weight), bias), {
    name: 'layer_norm',
    inputs: [x, weight, bias],
    gradient: (d) => {
      const t = mul(d, standard.rows);
      const column = reshape(weight, [width, 1]);
      const mean = (of: Value): Value => gemm(of, column, { alpha: 1 / width });
      return [
        standardisedGradient(standard, mul(d, weight), { d: mean(d), product: mean(t) }),
        reshape(reduceSum(t, [0]), [width]),
        reshape(reduceSum(d, [0]), [width]),
      ];
    },
  });
}
