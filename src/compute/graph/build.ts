/** Builds graphs. `apply` checks shapes and dtypes at once. The rest are short names for the operators. */
import { GraphError } from '../../core/errors.js';
import {
  type Convolution,
  type CustomGradient,
  type Dtype,
  formatType,
  type OpAttributes,
  type OpType,
  sameShape,
  type Shape,
  type Value,
} from './ir.js';
import { operators } from './operators.js';

/** Adds one operator. Raises GraphError naming the operator, its inputs and their shapes when they do not fit. */
export function apply<K extends OpType>(op: K, inputs: readonly Value[], attributes: OpAttributes[K]): Value {
  const graph = inputs[0]?.graph;
  if (graph === undefined) throw new GraphError(`${op} needs at least one input`);
  if (inputs.some((input) => input.graph !== graph)) throw new GraphError(`${op} mixes values of different graphs`);
  try {
    const type = operators[op].infer(inputs, attributes);
    return graph.node(type, { kind: 'node', op, inputs: [...inputs], attributes });
  } catch (error) {
    if (!(error instanceof GraphError)) throw error;
    throw new GraphError(`${op}(${inputs.join(', ')}): ${error.message}`, {
      where: `graph ${graph.name}`,
      cause: error,
    });
  }
}

/** Replaces the differentiation of the nodes that compute `output` by a gradient function. */
export function withGradient(output: Value, custom: CustomGradient): Value {
  if (output.origin.kind !== 'node') {
    throw new GraphError(`${custom.name}: only a computed value can have its own gradient`);
  }
  const younger = custom.inputs.find((input) => input.id >= output.id);
  if (younger !== undefined) throw new GraphError(`${custom.name}: ${String(younger)} is not older than its output`);
  output.custom = custom;
  return output;
}

const NONE = {};

export const add = (a: Value, b: Value): Value => apply('Add', [a, b], NONE);
export const sub = (a: Value, b: Value): Value => apply('Sub', [a, b], NONE);
export const mul = (a: Value, b: Value): Value => apply('Mul', [a, b], NONE);
export const div = (a: Value, b: Value): Value => apply('Div', [a, b], NONE);
export const minimum = (a: Value, b: Value): Value => apply('Min', [a, b], NONE);
export const maximum = (a: Value, b: Value): Value => apply('Max', [a, b], NONE);
export const neg = (x: Value): Value => apply('Neg', [x], NONE);
export const exp = (x: Value): Value => apply('Exp', [x], NONE);
export const log = (x: Value): Value => apply('Log', [x], NONE);
export const sqrt = (x: Value): Value => apply('Sqrt', [x], NONE);
export const reciprocal = (x: Value): Value => apply('Reciprocal', [x], NONE);
export const sigmoid = (x: Value): Value => apply('Sigmoid', [x], NONE);
export const tanh = (x: Value): Value => apply('Tanh', [x], NONE);
export const relu = (x: Value): Value => apply('Relu', [x], NONE);
export const erf = (x: Value): Value => apply('Erf', [x], NONE);
export const abs = (x: Value): Value => apply('Abs', [x], NONE);
export const sin = (x: Value): Value => apply('Sin', [x], NONE);
export const cos = (x: Value): Value => apply('Cos', [x], NONE);
export const gelu = (x: Value): Value => apply('Gelu', [x], NONE);
export const equal = (a: Value, b: Value): Value => apply('Equal', [a, b], NONE);
export const less = (a: Value, b: Value): Value => apply('Less', [a, b], NONE);
export const greater = (a: Value, b: Value): Value => apply('Greater', [a, b], NONE);
export const where = (condition: Value, yes: Value, no: Value): Value => apply('Where', [condition, yes, no], NONE);
export const cast = (x: Value, to: Dtype): Value => (x.dtype === to ? x : apply('Cast', [x], { to }));
export const matMul = (a: Value, b: Value): Value => apply('MatMul', [a, b], NONE);
export const softmax = (x: Value): Value => apply('Softmax', [x], NONE);
export const logSoftmax = (x: Value): Value => apply('LogSoftmax', [x], NONE);

export interface GemmOptions {
  readonly transA?: boolean;
  readonly transB?: boolean;
  readonly alpha?: number;
  /** A bias [columns], added to every row. */
  readonly bias?: Value;
}

/** alpha * op(a) op(b) + bias over two matrices. */
export function gemm(a: Value, b: Value, { transA = false, transB = false, alpha = 1, bias }: GemmOptions = {}): Value {
  return apply('Gemm', bias === undefined ? [a, b] : [a, b, bias], { transA, transB, alpha });
}

/** Overrides of the default options: stride 1, no padding. */
export function conv(x: Value, kernels: Value, options: Partial<Convolution> & { readonly bias?: Value } = {}): Value {
  const { strides = [1, 1], pads = [0, 0, 0, 0], dilations = [1, 1], bias } = options;
  return apply('Conv', bias === undefined ? [x, kernels] : [x, kernels, bias], { strides, pads, dilations });
}
export const convTranspose = (x: Value, kernels: Value, attributes: OpAttributes['ConvTranspose']): Value =>
  apply('ConvTranspose', [x, kernels], attributes);
export const layerNormalization = (x: Value, scale: Value, shift: Value, epsilon: number): Value =>
  apply('LayerNormalization', [x, scale, shift], { epsilon });
export const rmsNormalization = (x: Value, scale: Value, epsilon: number): Value =>
  apply('RMSNormalization', [x, scale], { epsilon });

export const reshape = (x: Value, shape: Shape): Value =>
  sameShape(x.shape, shape) ? x : apply('Reshape', [x], { shape });
export const transpose = (x: Value, perm: readonly number[]): Value => apply('Transpose', [x], { perm });
export const expand = (x: Value, shape: Shape): Value =>
  sameShape(x.shape, shape) ? x : apply('Expand', [x], { shape });
export const concat = (xs: readonly Value[], axis: number): Value =>
  xs.length === 1 ? xs[0] : apply('Concat', xs, { axis });
export const slice = (x: Value, axis: number, start: number, end: number): Value =>
  start === 0 && end === x.shape[axis] ? x : apply('Slice', [x], { axis, start, end });
export const pad = (x: Value, axis: number, before: number, after: number): Value =>
  before === 0 && after === 0 ? x : apply('Pad', [x], { axis, before, after });
export const gather = (data: Value, indices: Value, axis = 0): Value => apply('Gather', [data, indices], { axis });
export const gatherElements = (data: Value, indices: Value, axis: number): Value =>
  apply('GatherElements', [data, indices], { axis });
/** `data` [R, W] with rows of `updates` [N, W] added: each to the row that its index, int64 [N], names. */
export const addRows = (data: Value, indices: Value, updates: Value): Value =>
  apply('ScatterElements', [data, expand(reshape(indices, [indices.size, 1]), updates.shape), updates], { axis: 0 });

export const reduceSum = (x: Value, axes: readonly number[]): Value => apply('ReduceSum', [x], { axes });
export const reduceMean = (x: Value, axes: readonly number[]): Value => apply('ReduceMean', [x], { axes });
export const reduceMax = (x: Value, axes: readonly number[]): Value => apply('ReduceMax', [x], { axes });
export const reduceSumSquare = (x: Value, axes: readonly number[]): Value => apply('ReduceSumSquare', [x], { axes });
export const argMin = (x: Value, axis: number): Value => apply('ArgMin', [x], { axis });
export const rotary = (x: Value, cosines: Value, sines: Value, positions: Value, interleaved = false): Value =>
  apply('RotaryEmbedding', [x, cosines, sines, positions], { interleaved });

/** The sum over everything, as a scalar. */
export function sumAll(x: Value): Value {
  return reshape(reduceSum(reshape(x, [x.size]), [0]), []);
}

/** A float32 scalar in the graph of `x`. */
export const scalarLike = (x: Value, value: number): Value => x.graph.scalar(value);

/** A scalar zero, for uses that broadcast it. */
export const zerosLike = (x: Value): Value => {
  if (x.dtype !== 'float32') throw new GraphError(`no zeros of type ${formatType(x)}`);
  return x.graph.scalar(0);
};

/** 0, 1, … size - 1 as an int64 constant. */
export function range(graph: Value['graph'], size: number): Value {
  return graph.constant(
    BigInt64Array.from({ length: size }, (_, i) => BigInt(i)),
    [size],
  );
}
