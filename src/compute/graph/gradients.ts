/**
 * One gradient rule per operator. A rule gets the output's gradient `d` and returns one entry per input, null for an
 * input without a gradient. Entries may have the broadcast shape of an elementwise operator: the driver in
 * differentiate.ts sums them back.
 */
import { GraphError } from '../../core/errors.js';
import { type Convolution, type OpAttributes, type OpType, sizeOf, type Value } from './ir.js';
import * as g from './build.js';

export interface GradientContext<K extends OpType> {
  readonly inputs: readonly Value[];
  readonly output: Value;
  readonly attributes: OpAttributes[K];
  /** The gradient of the output. */
  readonly d: Value;
}

export type GradientRule<K extends OpType> = (context: GradientContext<K>) => readonly (Value | null)[];

/** 'none' marks operators that pass no gradient, such as comparisons. */
export const gradientRules: { readonly [K in OpType]: GradientRule<K> | 'none' } = {
  Add: ({ d }) => [d, d],
  Sub: ({ d }) => [d, g.neg(d)],
  // d(ab) = b da + a db
  Mul: ({ inputs: [a, b], d }) => [g.mul(d, b), g.mul(d, a)],
  // d(a/b) = da / b - (a/b) db / b
  Div: ({ inputs: [, b], output, d }) => {
    const da = g.div(d, b);
    return [da, g.neg(g.mul(da, output))];
  },
  // the smaller one gets the gradient, at a tie the first
  Min: ({ inputs: [a, b], d }) => choose(g.less(b, a), d),
  Max: ({ inputs: [a, b], d }) => choose(g.greater(b, a), d),
  Neg: ({ d }) => [g.neg(d)],
  // y = exp x: dx = y dy
  Exp: ({ output, d }) => [g.mul(d, output)],
  Log: ({ inputs: [x], d }) => [g.div(d, x)],
  // y = sqrt x: dx = dy / 2y
  Sqrt: ({ output, d }) => [g.div(g.mul(d, g.scalarLike(d, 0.5)), output)],
  // y = 1/x: dx = -y^2 dy
  Reciprocal: ({ output, d }) => [g.neg(g.mul(d, g.mul(output, output)))],
  // dx = y (1 - y) dy
  Sigmoid: ({ output, d }) => [g.mul(d, g.sub(output, g.mul(output, output)))],
  // dx = (1 - y^2) dy
  Tanh: ({ output, d }) => [g.sub(d, g.mul(d, g.mul(output, output)))],
  Relu: ({ inputs: [x], d }) => [g.where(g.greater(x, g.scalarLike(x, 0)), d, g.zerosLike(d))],
  // dx = 2/sqrt(pi) exp(-x^2) dy
  Erf: ({ inputs: [x], d }) => [g.mul(d, g.mul(g.exp(g.neg(g.mul(x, x))), g.scalarLike(d, 2 / Math.sqrt(Math.PI))))],
  Abs: ({ inputs: [x], d }) => [g.where(g.less(x, g.scalarLike(x, 0)), g.neg(d), d)],
  Sin: ({ inputs: [x], d }) => [g.mul(d, g.cos(x))],
  Cos: ({ inputs: [x], d }) => [g.neg(g.mul(d, g.sin(x)))],
  // y = x s, s the logistic function of x p, p = a + b x^2: dy/dx = s + (y - y s) (3 p - 2 a)
  Gelu: ({ inputs: [x], output, d }) => {
    const p = g.add(g.mul(g.mul(x, x), g.scalarLike(x, GELU_CUBIC)), g.scalarLike(x, GELU_LINEAR));
    const s = g.sigmoid(g.mul(x, p));
    const steepness = g.sub(g.mul(p, g.scalarLike(x, 3)), g.scalarLike(x, 2 * GELU_LINEAR));
    return [g.mul(d, g.add(s, g.mul(g.sub(output, g.mul(output, s)), steepness)))];
  },
  Equal: 'none',
  Less: 'none',
  Greater: 'none',
  Where: ({ inputs: [condition, , no], d }) => {
    const [yesGradient, noGradient] = [g.where(condition, d, g.zerosLike(d)), g.where(condition, g.zerosLike(d), d)];
    return [null, yesGradient, no.dtype === 'float32' ? noGradient : null];
  },
  Cast: 'none',
  // dA = dC B^T, dB = A^T dC. The driver sums over broadcast leading axes
  MatMul: ({ inputs: [a, b], d }) => [g.matMul(d, transposed(b)), g.matMul(transposed(a), d)],
  // C = alpha op(A) op(B) + c
  Gemm: ({ inputs: [a, b, ...bias], attributes: { transA, transB, alpha }, d }) => [
    transA ? g.gemm(b, d, { transA: transB, transB: true, alpha }) : g.gemm(d, b, { transB: !transB, alpha }),
    transB ? g.gemm(d, a, { transA: true, transB: transA, alpha }) : g.gemm(a, d, { transA: !transA, alpha }),
    ...bias.map(() => d),
  ],
  // The input gets the transposed convolution. Each kernel element gets the sum over images of its inputs times d.
  Conv: ({ inputs: [x, kernels, ...bias], attributes, d }) => [
    g.convTranspose(d, kernels, { ...attributes, outputPadding: leftOver(x, kernels, attributes) }),
    kernelGradient(x, d, kernels, attributes),
    ...bias.map((vector) => g.reshape(g.reduceSum(d, [0, 2, 3]), vector.shape)),
  ],
  ConvTranspose: ({ inputs: [x, kernels], attributes, d }) => [
    g.conv(d, kernels, attributes),
    kernelGradient(d, x, kernels, attributes),
  ],
  Reshape: ({ inputs: [x], d }) => [g.reshape(d, x.shape)],
  Transpose: ({ attributes: { perm }, d }) => [g.transpose(d, invert(perm))],
  Expand: ({ d }) => [d],
  Concat: ({ inputs, attributes: { axis }, d }) => {
    let start = 0;
    return inputs.map((input) => {
      const end = start + input.shape[axis];
      const part = g.slice(d, axis, start, end);
      start = end;
      return part;
    });
  },
  Slice: ({ inputs: [x], attributes: { axis, start, end }, d }) => [g.pad(d, axis, start, x.shape[axis] - end)],
  Pad: ({ inputs: [x], attributes: { axis, before }, d }) => [g.slice(d, axis, before, before + x.shape[axis])],
  // Rows are summed in a fixed order: by a product with the one-hot matrix for a small table, otherwise one after
  // another. ScatterElements keeps that order on the CPU, ScatterND does not.
  Gather: ({ inputs: [data, indices], attributes: { axis }, d }) => {
    if (axis !== 0) throw new GraphError(`the gradient of Gather is defined for axis 0, not ${axis}`);
    const [rows, width] = [data.shape[0], sizeOf(data.shape.slice(1))];
    const [picked, updates] = [g.reshape(indices, [indices.size]), g.reshape(d, [indices.size, width])];
    const sum =
      rows <= ONE_HOT_ROWS
        ? g.gemm(oneHot(picked, rows), updates, { transA: true })
        : g.addRows(g.expand(g.zerosLike(d), [rows, width]), picked, updates);
    return [g.reshape(sum, data.shape), null];
  },
  GatherElements: ({ inputs: [data, indices], attributes: { axis }, d }) => {
    const last = data.shape.length - 1;
    if (axis !== last || indices.shape[last] !== 1) {
      throw new GraphError('the gradient of GatherElements is defined for one element along the last axis');
    }
    const hot = g.equal(indices, g.range(d.graph, data.shape[last]));
    return [g.where(hot, d, g.zerosLike(d)), null];
  },
  ScatterElements: ({ inputs: [, indices], attributes: { axis }, d }) => [d, null, g.gatherElements(d, indices, axis)],
  ReduceSum: ({ inputs: [x], d }) => [g.expand(d, x.shape)],
  ReduceMean: ({ inputs: [x], attributes: { axes }, d }) => [
    g.expand(g.mul(d, g.scalarLike(d, 1 / sizeOf(axes.map((axis) => x.shape[axis])))), x.shape),
  ],
  // The gradient is shared equally between the elements that attain the maximum.
  ReduceMax: ({ inputs: [x], output, attributes: { axes }, d }) => {
    const attains = g.cast(g.equal(x, output), 'float32');
    return [g.mul(attains, g.div(d, g.reduceSum(attains, axes)))];
  },
  // d sum(x^2) = 2 x
  ReduceSumSquare: ({ inputs: [x], d }) => [g.mul(x, g.mul(d, g.scalarLike(d, 2)))],
  ArgMin: 'none',
  // n = c r, c = x - mean, r = 1 / sqrt(mean(c^2) + epsilon): dx = r (dn - mean(dn) - n mean(n dn)), dn = scale dy
  LayerNormalization: ({ inputs: [x, scale], attributes: { epsilon }, d }) => {
    const last = x.shape.length - 1;
    const c = g.sub(x, g.reduceMean(x, [last]));
    const r = inverseLength(c, epsilon);
    const n = g.mul(c, r);
    const t = g.mul(d, n);
    const dn = g.mul(d, scale);
    const inner = g.mul(n, alongWidth(t, scale));
    return [g.mul(g.sub(g.sub(dn, alongWidth(d, scale)), inner), r), t, d];
  },
  // n = x r, r = 1 / sqrt(mean(x^2) + epsilon): dx = r (dn - n mean(n dn)), dn = scale dy
  RMSNormalization: ({ inputs: [x, scale], attributes: { epsilon }, d }) => {
    const r = inverseLength(x, epsilon);
    const n = g.mul(x, r);
    const t = g.mul(d, n);
    const inner = g.mul(n, alongWidth(t, scale));
    return [g.mul(g.sub(g.mul(d, scale), inner), r), t];
  },
  // dx = y (dy - sum(y dy))
  Softmax: ({ output, d }) => {
    const weighted = g.mul(d, output);
    return [g.sub(weighted, g.mul(output, g.reduceSum(weighted, [output.shape.length - 1])))];
  },
  // dx = dy - exp(y) sum(dy)
  LogSoftmax: ({ output, d }) => [g.sub(d, g.mul(g.exp(output), g.reduceSum(d, [output.shape.length - 1])))],
  // a rotation's transpose is the rotation by the negative angle
  RotaryEmbedding: ({ inputs: [, cos, sin, positions], attributes: { interleaved }, d }) => [
    g.rotary(d, cos, g.neg(sin), positions, interleaved),
    null,
    null,
    null,
  ],
};

/** 2 sqrt(2 / pi), and that times 0.044715 (Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016). */
const GELU_LINEAR = 2 * Math.sqrt(2 / Math.PI);
const GELU_CUBIC = 0.044715 * GELU_LINEAR;

/** 1 / sqrt(mean(x^2) + epsilon) along the last axis. */
function inverseLength(x: Value, epsilon: number): Value {
  const last = x.shape.length - 1;
  const meanSquare = g.mul(g.reduceSumSquare(x, [last]), g.scalarLike(x, 1 / x.shape[last]));
  return g.reciprocal(g.sqrt(g.add(meanSquare, g.scalarLike(x, epsilon))));
}

/** The mean along the last axis of x times a vector, [width] or [batch, 1, width]: a product, which makes no tensor of x's size. */
function alongWidth(x: Value, vector: Value): Value {
  const width = vector.shape[vector.shape.length - 1];
  const column = g.reshape(g.mul(vector, g.scalarLike(x, 1 / width)), [...vector.shape.slice(0, -2), width, 1]);
  if (x.shape.length > 1) return g.matMul(x, column);
  return g.reshape(g.matMul(g.reshape(x, [1, width]), column), [1]);
}

/** The number of last rows and columns of a padded image that no kernel reads. */
function leftOver(x: Value, kernels: Value, { strides, pads, dilations }: Convolution): readonly [number, number] {
  const of = (axis: 0 | 1): number => {
    const extent = dilations[axis] * (kernels.shape[2 + axis] - 1) + 1;
    return (x.shape[2 + axis] + pads[axis] + pads[axis + 2] - extent) % strides[axis];
  };
  return [of(0), of(1)];
}

/**
 * The gradient of a convolution's kernels, from x and the gradient d of its output y: dk[o, c, i, j] = sum_{n, p, q}
 * x[n, c, s p + t i, s q + t j] d[n, o, p, q], with strides s and dilations t. It is itself a convolution of x by d, in
 * which images and channels change roles, and so do s and t.
 */
function kernelGradient(x: Value, d: Value, kernels: Value, attributes: Convolution): Value {
  const { strides, pads, dilations } = attributes;
  if ([...strides, ...dilations].every((step) => step === 1)) return denseKernelGradient(x, d, kernels, attributes);
  const swap = [1, 0, 2, 3];
  const all = g.conv(g.transpose(x, swap), g.transpose(d, swap), { strides: dilations, pads, dilations: strides });
  // Elements that no kernel position reads lie outside the kernel's own elements.
  const own = g.slice(g.slice(all, 2, 0, kernels.shape[2]), 3, 0, kernels.shape[3]);
  return g.transpose(own, swap);
}

/**
 * The same gradient for strides and dilations of 1: a product of d [O, N P Q] with the places [N P Q, C] that each kernel element
 * reads. A training step of configs/tiny_vae.jsonnet took 0.48 CPU seconds with it, and 0.70 with a convolution by
 * image-sized kernels.
 */
function denseKernelGradient(
  x: Value,
  d: Value,
  kernels: Value,
  { pads: [top, left, bottom, right] }: Convolution,
): Value {
  const [outputs, channels, high, wide] = kernels.shape;
  const [, , rows, columns] = d.shape;
  const places = d.size / outputs;
  const last = g.pad(g.pad(g.transpose(x, [0, 2, 3, 1]), 1, top, bottom), 2, left, right);
  const read = Array.from({ length: high * wide }, (_, at) => {
    const [i, j] = [Math.floor(at / wide), at % wide];
    return g.slice(g.slice(last, 1, i, i + rows), 2, j, j + columns);
  });
  const columnsRead = g.reshape(g.concat(read, 3), [places, high * wide * channels]);
  const found = g.matMul(g.reshape(g.transpose(d, [1, 0, 2, 3]), [outputs, places]), columnsRead);
  return g.transpose(g.reshape(found, [outputs, high, wide, channels]), [0, 3, 1, 2]);
}

/** Rows of a table up to which its gradient is a product with the one-hot matrix. */
const ONE_HOT_ROWS = 4096;

function choose(second: Value, d: Value): readonly Value[] {
  return [g.where(second, g.zerosLike(d), d), g.where(second, d, g.zerosLike(d))];
}

/** Swaps the last two axes. */
function transposed(x: Value): Value {
  const rank = x.shape.length;
  return g.transpose(x, [...Array.from({ length: rank - 2 }, (_, axis) => axis), rank - 1, rank - 2]);
}

function invert(perm: readonly number[]): number[] {
  const out: number[] = [];
  perm.forEach((axis, at) => (out[axis] = at));
  return out;
}

/** [n] indices to a [n, depth] float matrix. */
function oneHot(indices: Value, depth: number): Value {
  const column = g.reshape(indices, [indices.size, 1]);
  return g.cast(g.equal(column, g.range(indices.graph, depth)), 'float32');
}
