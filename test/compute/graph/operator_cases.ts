/** For every operator, inputs that its forward value and its gradient are checked on. A missing operator does not compile. */
import type { Convolution, Dtype, OpAttributes, OpType, Shape } from '../../../src/compute/graph/ir.js';

/** What the elements of an input are drawn from. `spread` keeps any two elements apart, so that no kink is near. */
export type Draw = 'normal' | 'spread' | 'positive' | 'signed' | 'bit' | { readonly below: number };

export interface CaseInput {
  readonly shape: Shape;
  readonly dtype: Dtype;
  readonly draw: Draw;
  /** Whether a gradient flows to it. */
  readonly gradient: boolean;
}

export interface OperatorCase<Attributes = object> {
  readonly label: string;
  readonly inputs: readonly CaseInput[];
  readonly attributes: Attributes;
}

const float = (shape: Shape, draw: Draw = 'normal', gradient = true): CaseInput => ({
  shape,
  dtype: 'float32',
  draw,
  gradient,
});
const fixed = (input: CaseInput): CaseInput => ({ ...input, gradient: false });
const index = (shape: Shape, below: number): CaseInput => ({ shape, dtype: 'int64', draw: { below }, gradient: false });
const flag = (shape: Shape): CaseInput => ({ shape, dtype: 'bool', draw: 'bit', gradient: false });

const NONE = {};

/** Shapes that broadcast in both directions, scalars among them. */
const PAIRS: readonly (readonly [Shape, Shape])[] = [
  [
    [2, 3],
    [2, 3],
  ],
  [[2, 3], [3]],
  [[3], [2, 3]],
  [
    [2, 1, 3],
    [4, 1],
  ],
  [
    [1, 2],
    [3, 1],
  ],
  [[], [2, 3]],
  [[2, 3], []],
  [[], []],
  [
    [1, 1],
    [1, 1, 1],
  ],
  [[2, 3, 4, 5], [5]],
];

function pairs(a: Draw, b: Draw, gradient = true): OperatorCase[] {
  return PAIRS.map(([x, y]) => ({
    label: `[${x.join()}] with [${y.join()}]`,
    inputs: [float(x, a, gradient), float(y, b, gradient)],
    attributes: NONE,
  }));
}

function singles(draw: Draw): OperatorCase[] {
  return [[], [5], [2, 3], [2, 1, 3, 2]].map((shape) => ({
    label: `[${shape.join()}]`,
    inputs: [float(shape, draw)],
    attributes: NONE,
  }));
}

function reductions(draw: Draw): OperatorCase<OpAttributes['ReduceSum']>[] {
  const forms: [Shape, number[]][] = [
    [[4], [0]],
    [[2, 3], [1]],
    [[2, 3], [0]],
    [
      [2, 3, 4],
      [0, 2],
    ],
    [
      [2, 3, 4],
      [0, 1, 2],
    ],
    [[2, 1, 3], [1]],
  ];
  return forms.map(([shape, axes]) => ({
    label: `[${shape.join()}] over ${axes.join()}`,
    inputs: [float(shape, draw)],
    attributes: { axes },
  }));
}

function lastAxis(): OperatorCase[] {
  return [[4], [2, 5], [2, 3, 4], [3, 1]].map((shape) => ({
    label: `[${shape.join()}]`,
    inputs: [float(shape)],
    attributes: NONE,
  }));
}

function rotary(
  batch: number,
  heads: number,
  places: number,
  depth: number,
  interleaved = false,
): OperatorCase<OpAttributes['RotaryEmbedding']> {
  return {
    label: `[${[batch, heads, places, depth].join()}]${interleaved ? ', interleaved' : ''}`,
    inputs: [
      float([batch, heads, places, depth]),
      fixed(float([7, depth / 2])),
      fixed(float([7, depth / 2])),
      index([batch, places], 7),
    ],
    attributes: { interleaved },
  };
}

/** Kernels [4, 3, h, w] over pictures [2, 3, H, W], or the transpose of that. */
function convolution(
  [rows, columns]: readonly [number, number],
  kernel: readonly [number, number],
  { strides = [1, 1], pads = [0, 0, 0, 0], dilations = [1, 1] }: Partial<Convolution> = {},
  bias = false,
): OperatorCase<Convolution> {
  return {
    label: `[${kernel.join()}] over [${rows}, ${columns}], strides ${strides.join()}, pads ${pads.join()}, dilations ${dilations.join()}${bias ? ', bias' : ''}`,
    inputs: [float([2, 3, rows, columns]), float([4, 3, ...kernel]), ...(bias ? [float([4])] : [])],
    attributes: { strides, pads, dilations },
  };
}

function transposedConvolution(
  size: readonly [number, number],
  kernel: readonly [number, number],
  outputPadding: readonly [number, number],
  options: Partial<Convolution> = {},
): OperatorCase<OpAttributes['ConvTranspose']> {
  const { label, inputs, attributes } = convolution(size, kernel, options);
  return {
    label,
    inputs: [float([2, 4, ...size]), inputs[1]],
    attributes: { ...attributes, outputPadding },
  };
}

function norm(x: Shape, ...vectors: readonly Shape[]): OperatorCase<OpAttributes['LayerNormalization']> {
  return {
    label: `[${x.join()}] by [${vectors[0].join()}]`,
    inputs: [float(x), ...vectors.map((vector) => float(vector))],
    attributes: { epsilon: 0.01 },
  };
}

function matrices(a: Shape, b: Shape): OperatorCase<OpAttributes['MatMul']> {
  return { label: `[${a.join()}] times [${b.join()}]`, inputs: [float(a), float(b)], attributes: NONE };
}

function gemm(transA: boolean, transB: boolean, alpha: number, bias = false): OperatorCase<OpAttributes['Gemm']> {
  return {
    label: `transA ${transA}, transB ${transB}, alpha ${alpha}${bias ? ', bias' : ''}`,
    inputs: [float(transA ? [4, 3] : [3, 4]), float(transB ? [5, 4] : [4, 5]), ...(bias ? [float([5])] : [])],
    attributes: { transA, transB, alpha },
  };
}

export const operatorCases: { readonly [K in OpType]: readonly OperatorCase<OpAttributes[K]>[] } = {
  Add: pairs('normal', 'normal'),
  Sub: pairs('normal', 'normal'),
  Mul: pairs('normal', 'normal'),
  Div: pairs('normal', 'signed'),
  Min: pairs('spread', 'spread'),
  Max: pairs('spread', 'spread'),
  Neg: singles('normal'),
  Exp: singles('normal'),
  Log: singles('positive'),
  Sqrt: singles('positive'),
  Reciprocal: singles('signed'),
  Sigmoid: singles('normal'),
  Tanh: singles('normal'),
  Relu: singles('signed'),
  Erf: singles('normal'),
  Abs: singles('signed'),
  Sin: singles('normal'),
  Cos: singles('normal'),
  Gelu: singles('normal'),
  Equal: [
    ...pairs('normal', 'normal', false),
    { label: 'int64', inputs: [index([3, 4], 3), index([4], 3)], attributes: NONE },
  ],
  Less: [
    ...pairs('normal', 'normal', false),
    { label: 'int64', inputs: [index([3, 4], 3), index([4], 3)], attributes: NONE },
  ],
  Greater: [
    ...pairs('normal', 'normal', false),
    { label: 'int64', inputs: [index([3, 4], 3), index([4], 3)], attributes: NONE },
  ],
  Where: [
    { label: 'one shape', inputs: [flag([2, 3]), float([2, 3]), float([2, 3])], attributes: NONE },
    { label: 'a scalar choice', inputs: [flag([]), float([2, 3]), float([3])], attributes: NONE },
    { label: 'three shapes', inputs: [flag([2, 1, 1]), float([3, 1]), float([4])], attributes: NONE },
    { label: 'scalar values', inputs: [flag([2, 3]), float([]), float([2, 3])], attributes: NONE },
    { label: 'integers', inputs: [flag([2, 3]), index([2, 3], 9), index([3], 9)], attributes: NONE },
  ],
  Cast: [
    { label: 'bool to float32', inputs: [flag([2, 3])], attributes: { to: 'float32' } },
    { label: 'int64 to float32', inputs: [index([2, 3], 9)], attributes: { to: 'float32' } },
    { label: 'float32 to int64', inputs: [fixed(float([2, 3]))], attributes: { to: 'int64' } },
    { label: 'int64 to bool', inputs: [index([2, 3], 2)], attributes: { to: 'bool' } },
  ],
  MatMul: [
    matrices([3, 4], [4, 5]),
    matrices([1, 4], [4, 1]),
    matrices([2, 3, 4], [2, 4, 5]),
    matrices([2, 3, 4], [4, 5]),
    matrices([3, 4], [2, 4, 5]),
    // grouped-query attention: [batch, groups, heads of a group, queries, depth] with keys shared by a group
    matrices([2, 2, 3, 4, 2], [2, 2, 1, 2, 4]),
    matrices([2, 1, 3, 2], [1, 4, 2, 3]),
  ],
  Gemm: [
    gemm(false, false, 1),
    gemm(true, false, 1),
    gemm(false, true, 0.5),
    gemm(true, true, -2),
    gemm(false, false, 0.125),
    gemm(false, true, 0.5, true),
    gemm(true, false, 1, true),
  ],
  Reshape: [
    { label: 'to a matrix', inputs: [float([6])], attributes: { shape: [2, 3] } },
    { label: 'to a scalar', inputs: [float([1, 1])], attributes: { shape: [] } },
    { label: 'from a scalar', inputs: [float([])], attributes: { shape: [1] } },
  ],
  Transpose: [
    { label: 'a matrix', inputs: [float([2, 3])], attributes: { perm: [1, 0] } },
    { label: 'a cycle of three', inputs: [float([2, 3, 4])], attributes: { perm: [2, 0, 1] } },
    { label: 'heads', inputs: [float([2, 3, 2, 2])], attributes: { perm: [0, 2, 1, 3] } },
  ],
  Expand: [
    { label: 'a scalar', inputs: [float([])], attributes: { shape: [2, 3] } },
    { label: 'a row', inputs: [float([3])], attributes: { shape: [2, 3] } },
    { label: 'a column', inputs: [float([2, 1])], attributes: { shape: [4, 2, 3] } },
  ],
  Concat: [
    { label: 'two', inputs: [float([2, 3]), float([2, 1])], attributes: { axis: 1 } },
    { label: 'three', inputs: [float([1, 2]), float([2, 2]), float([3, 2])], attributes: { axis: 0 } },
    { label: 'in the middle', inputs: [float([2, 1, 2]), float([2, 3, 2])], attributes: { axis: 1 } },
  ],
  Slice: [
    { label: 'the middle', inputs: [float([2, 5])], attributes: { axis: 1, start: 1, end: 4 } },
    { label: 'the end', inputs: [float([4, 2])], attributes: { axis: 0, start: 3, end: 4 } },
    { label: 'the start', inputs: [float([2, 3, 2])], attributes: { axis: 1, start: 0, end: 1 } },
  ],
  Pad: [
    { label: 'both sides', inputs: [float([2, 3])], attributes: { axis: 1, before: 1, after: 2 } },
    { label: 'before', inputs: [float([2, 2, 2])], attributes: { axis: 0, before: 1, after: 0 } },
    { label: 'after', inputs: [float([3])], attributes: { axis: 0, before: 0, after: 2 } },
  ],
  Gather: [
    { label: 'rows, some twice', inputs: [float([3, 4]), index([7], 3)], attributes: { axis: 0 } },
    { label: 'a table of indices', inputs: [float([5, 2]), index([2, 3], 5)], attributes: { axis: 0 } },
    { label: 'one row', inputs: [float([3, 2, 2]), index([], 3)], attributes: { axis: 0 } },
    { label: 'elements', inputs: [float([4]), index([6], 4)], attributes: { axis: 0 } },
    { label: 'columns, forward only', inputs: [fixed(float([2, 4])), index([3], 4)], attributes: { axis: 1 } },
  ],
  GatherElements: [
    { label: 'one of each row', inputs: [float([3, 5]), index([3, 1], 5)], attributes: { axis: 1 } },
    { label: 'rank 3', inputs: [float([2, 3, 4]), index([2, 3, 1], 4)], attributes: { axis: 2 } },
    { label: 'several, forward only', inputs: [fixed(float([3, 4])), index([3, 2], 4)], attributes: { axis: 1 } },
    { label: 'of columns, forward only', inputs: [fixed(float([3, 4])), index([2, 4], 3)], attributes: { axis: 0 } },
  ],
  ScatterElements: [
    // Seven rows for three: some are added to twice and more.
    { label: 'rows', inputs: [float([3, 4]), index([7, 4], 3), float([7, 4])], attributes: { axis: 0 } },
    { label: 'columns', inputs: [float([3, 2]), index([3, 5], 2), float([3, 5])], attributes: { axis: 1 } },
  ],
  ReduceSum: reductions('normal'),
  ReduceMean: reductions('normal'),
  ReduceMax: reductions('spread'),
  ReduceSumSquare: reductions('normal'),
  ArgMin: [
    { label: 'of rows', inputs: [fixed(float([3, 4], 'spread'))], attributes: { axis: 1 } },
    { label: 'of columns', inputs: [fixed(float([3, 4], 'spread'))], attributes: { axis: 0 } },
  ],
  Conv: [
    convolution([3, 4], [1, 1], {}, true),
    convolution([4, 3], [3, 3], { pads: [1, 1, 1, 1] }, true),
    convolution([4, 5], [3, 2], { strides: [2, 2] }),
    // what diffusers' autoencoders halve pictures by
    convolution([4, 6], [3, 3], { strides: [2, 2], pads: [0, 0, 1, 1] }),
    convolution([6, 5], [2, 2], { strides: [2, 1], pads: [1, 0, 0, 1], dilations: [2, 3] }),
    convolution([4, 4], [2, 2], { strides: [2, 2] }),
  ],
  ConvTranspose: [
    transposedConvolution([2, 3], [3, 3], [0, 0], { pads: [1, 1, 1, 1] }),
    transposedConvolution([2, 3], [2, 2], [0, 1], { strides: [2, 2], pads: [0, 1, 0, 0] }),
    transposedConvolution([3, 2], [2, 3], [0, 0], { strides: [1, 2], dilations: [2, 1] }),
  ],
  LayerNormalization: [
    norm([5], [5], [5]),
    norm([3, 4], [4], [4]),
    norm([2, 3, 4], [4], [4]),
    norm([2, 3, 4], [2, 1, 4], [2, 1, 4]),
  ],
  RMSNormalization: [norm([5], [5]), norm([3, 4], [4]), norm([2, 3, 4], [4])],
  Softmax: lastAxis(),
  LogSoftmax: lastAxis(),
  RotaryEmbedding: [
    rotary(2, 3, 2, 4),
    rotary(1, 1, 1, 2),
    rotary(2, 2, 3, 6),
    rotary(2, 3, 2, 4, true),
    rotary(1, 2, 3, 6, true),
  ],
};
