/** Every operator: its shape rule and its ONNX form. A missing one does not compile. */
import { GraphError } from '../../core/errors.js';
import {
  type Convolution,
  type Dtype,
  formatShape,
  type OpAttributes,
  type OpType,
  sameShape,
  type Shape,
  sizeOf,
  type ValueType,
} from './ir.js';

/** The ONNX form of a node. ONNX takes some attributes as int64 inputs. Inputs that depend on sizes come first. */
export interface OnnxForm {
  readonly attributes?: Readonly<Record<string, number | readonly number[]>>;
  readonly textAttributes?: Readonly<Record<string, string>>;
  readonly floatAttributes?: Readonly<Record<string, number>>;
  readonly sizes?: readonly (readonly number[])[];
  readonly extraInputs?: readonly (readonly number[])[];
}

export interface OperatorSpec<K extends OpType> {
  /** Shape and dtype of the output. Raises GraphError (without the operator's name) if the inputs do not fit. */
  readonly infer: (inputs: readonly ValueType[], attributes: OpAttributes[K]) => ValueType;
  readonly onnx?: (attributes: OpAttributes[K], inputs: readonly ValueType[]) => OnnxForm;
}

function expectArity(inputs: readonly ValueType[], count: number): void {
  if (inputs.length !== count) {
    throw new GraphError(`takes ${count} ${count === 1 ? 'input' : 'inputs'}, got ${inputs.length}`);
  }
}

function expectDtype(input: ValueType, ...allowed: readonly Dtype[]): void {
  if (!allowed.includes(input.dtype)) throw new GraphError(`takes ${allowed.join(' or ')}, got ${input.dtype}`);
}

function expectAxis(axis: number, rank: number): void {
  if (!Number.isInteger(axis) || axis < 0 || axis >= rank) {
    throw new GraphError(`axis ${axis} is not within rank ${rank}`);
  }
}

/** The numpy broadcast of two shapes. */
function broadcast(a: Shape, b: Shape): Shape {
  const rank = Math.max(a.length, b.length);
  const out: number[] = [];
  for (let axis = 0; axis < rank; axis++) {
    const x = a[axis - rank + a.length] ?? 1;
    const y = b[axis - rank + b.length] ?? 1;
    if (x !== y && x !== 1 && y !== 1) {
      throw new GraphError(`cannot broadcast ${formatShape(a)} with ${formatShape(b)}`);
    }
    out.push(x === 1 ? y : x);
  }
  return out;
}

function binaryFloat(inputs: readonly ValueType[]): ValueType {
  expectArity(inputs, 2);
  for (const input of inputs) expectDtype(input, 'float32');
  return { shape: broadcast(inputs[0].shape, inputs[1].shape), dtype: 'float32' };
}

function unaryFloat(inputs: readonly ValueType[]): ValueType {
  expectArity(inputs, 1);
  expectDtype(inputs[0], 'float32');
  return { shape: inputs[0].shape, dtype: 'float32' };
}

function comparison(inputs: readonly ValueType[]): ValueType {
  expectArity(inputs, 2);
  if (inputs[0].dtype !== inputs[1].dtype) {
    throw new GraphError(`compares ${inputs[0].dtype} with ${inputs[1].dtype}`);
  }
  return { shape: broadcast(inputs[0].shape, inputs[1].shape), dtype: 'bool' };
}

const binary = { infer: binaryFloat };
const unary = { infer: unaryFloat };
const compare = { infer: comparison };
const order = {
  infer: (inputs: readonly ValueType[]): ValueType => {
    const type = comparison(inputs);
    expectDtype(inputs[0], 'float32', 'int64');
    return type;
  },
};

type Sizes = readonly [number, number, number, number];

function operands(inputs: readonly ValueType[], { strides, pads, dilations }: Convolution): readonly [Sizes, Sizes] {
  for (const input of inputs) expectDtype(input, 'float32');
  const [x, kernels] = [inputs[0].shape, inputs[1].shape];
  if (x.length !== 4 || kernels.length !== 4) throw new GraphError('takes images and kernels of four axes');
  if ([...strides, ...dilations].some((step) => !Number.isInteger(step) || step < 1)) {
    throw new GraphError(`strides ${formatShape(strides)} and dilations ${formatShape(dilations)} must be at least 1`);
  }
  if (pads.some((pad) => !Number.isInteger(pad) || pad < 0)) throw new GraphError(`pads by ${formatShape(pads)}`);
  return [x as unknown as Sizes, kernels as unknown as Sizes];
}

/** The extent of a kernel: the distance between its first and last element, plus one. */
const extent = (kernels: Sizes, { dilations }: Convolution, axis: 0 | 1): number =>
  dilations[axis] * (kernels[2 + axis] - 1) + 1;

const padded = ({ pads }: Convolution, axis: 0 | 1): number => pads[axis] + pads[axis + 2];

const kernelForm = ({ strides, pads, dilations }: Convolution): OnnxForm => ({
  attributes: { strides, pads, dilations },
});

/**
 * The normalized type, given the number of vectors that follow. A vector is [width], or [batch, 1, width] if the first
 * input has three axes.
 */
function normalized(inputs: readonly ValueType[], vectors: number, perSample: boolean): ValueType {
  expectArity(inputs, 1 + vectors);
  for (const input of inputs) expectDtype(input, 'float32');
  const { shape } = inputs[0];
  const width = shape.at(-1);
  if (width === undefined) throw new GraphError('takes at least one axis');
  const allowed = [[width], ...(perSample && shape.length === 3 ? [[shape[0], 1, width]] : [])];
  for (const vector of inputs.slice(1)) {
    if (allowed.some((one) => one.join() === vector.shape.join())) continue;
    throw new GraphError(
      `the scale or shift has shape ${formatShape(vector.shape)}; allowed: ${allowed.map(formatShape).join(', ')}`,
    );
  }
  return { shape, dtype: 'float32' };
}

function reduce(inputs: readonly ValueType[], { axes }: { readonly axes: readonly number[] }): ValueType {
  expectArity(inputs, 1);
  expectDtype(inputs[0], 'float32');
  axes.forEach((axis) => expectAxis(axis, inputs[0].shape.length));
  if (axes.length === 0 || new Set(axes).size !== axes.length) {
    throw new GraphError(`reduces over one or more different axes, not ${formatShape(axes)}`);
  }
  return { shape: inputs[0].shape.map((size, axis) => (axes.includes(axis) ? 1 : size)), dtype: 'float32' };
}

function sameType(inputs: readonly ValueType[]): ValueType {
  expectArity(inputs, 1);
  expectDtype(inputs[0], 'float32');
  return inputs[0];
}

const reduction = {
  infer: reduce,
  onnx: ({ axes }: { readonly axes: readonly number[] }) => ({ attributes: { keepdims: 1 }, extraInputs: [axes] }),
};
const lastAxis = { infer: sameType, onnx: () => ({ attributes: { axis: -1 } }) };

export const operators: { readonly [K in OpType]: OperatorSpec<K> } = {
  Add: binary,
  Sub: binary,
  Mul: binary,
  Div: binary,
  Min: binary,
  Max: binary,
  Neg: unary,
  Exp: unary,
  Log: unary,
  Sqrt: unary,
  Reciprocal: unary,
  Sigmoid: unary,
  Tanh: unary,
  Relu: unary,
  Erf: unary,
  Abs: unary,
  Sin: unary,
  Cos: unary,
  Gelu: { ...unary, onnx: () => ({ textAttributes: { approximate: 'tanh' } }) },
  Equal: compare,
  Less: order,
  Greater: order,
  Where: {
    infer: (inputs) => {
      expectArity(inputs, 3);
      expectDtype(inputs[0], 'bool');
      if (inputs[1].dtype !== inputs[2].dtype) {
        throw new GraphError(`chooses between ${inputs[1].dtype} and ${inputs[2].dtype}`);
      }
      return {
        shape: broadcast(inputs[0].shape, broadcast(inputs[1].shape, inputs[2].shape)),
        dtype: inputs[1].dtype,
      };
    },
  },
  Cast: {
    infer: (inputs, { to }) => {
      expectArity(inputs, 1);
      return { shape: inputs[0].shape, dtype: to };
    },
    onnx: ({ to }) => ({ attributes: { to: { float32: 1, int64: 7, bool: 9 }[to] } }),
  },
  MatMul: {
    infer: (inputs) => {
      expectArity(inputs, 2);
      for (const input of inputs) expectDtype(input, 'float32');
      const [a, b] = [inputs[0].shape, inputs[1].shape];
      if (a.length < 2 || b.length < 2) throw new GraphError('takes matrices (rank 2 or more)');
      if (a.at(-1) !== b.at(-2)) throw new GraphError(`inner sizes differ: ${formatShape(a)} times ${formatShape(b)}`);
      return { shape: [...broadcast(a.slice(0, -2), b.slice(0, -2)), a.at(-2)!, b.at(-1)!], dtype: 'float32' };
    },
  },
  Gemm: {
    infer: (inputs, { transA, transB }) => {
      if (inputs.length !== 3) expectArity(inputs, 2);
      for (const input of inputs) expectDtype(input, 'float32');
      const [a, b] = [inputs[0].shape, inputs[1].shape];
      if (a.length !== 2 || b.length !== 2) throw new GraphError('takes two matrices of rank 2');
      const [m, k] = transA ? [a[1], a[0]] : [a[0], a[1]];
      const [l, n] = transB ? [b[1], b[0]] : [b[0], b[1]];
      if (k !== l) throw new GraphError(`inner sizes differ: ${k} and ${l} (transA ${transA}, transB ${transB})`);
      if (inputs.length === 3 && !sameShape(inputs[2].shape, [n])) {
        throw new GraphError(`adds ${formatShape(inputs[2].shape)}, which must be [${n}]`);
      }
      return { shape: [m, n], dtype: 'float32' };
    },
    onnx: ({ transA, transB, alpha }) => ({
      attributes: { transA: Number(transA), transB: Number(transB) },
      floatAttributes: { alpha },
    }),
  },
  RotaryEmbedding: {
    infer: (inputs) => {
      expectArity(inputs, 4);
      const [x, cos, sin, positions] = [inputs[0], inputs[1], inputs[2], inputs[3]];
      expectDtype(x, 'float32');
      expectDtype(positions, 'int64');
      if (x.shape.length !== 4) throw new GraphError('takes [batch, heads, positions, depth]');
      const half = x.shape[3] / 2;
      for (const cache of [cos, sin]) {
        expectDtype(cache, 'float32');
        if (cache.shape.length !== 2 || cache.shape[1] !== half) {
          throw new GraphError(`a cache must be [positions of the model, ${half}], got ${formatShape(cache.shape)}`);
        }
      }
      if (positions.shape[0] !== x.shape[0] || positions.shape[1] !== x.shape[2]) {
        throw new GraphError(`positions must be [${x.shape[0]}, ${x.shape[2]}], got ${formatShape(positions.shape)}`);
      }
      return { shape: x.shape, dtype: 'float32' };
    },
    onnx: ({ interleaved }) => ({ attributes: { interleaved: Number(interleaved) } }),
  },
  Conv: {
    infer: (inputs, attributes) => {
      if (inputs.length !== 3) expectArity(inputs, 2);
      const [x, kernels] = operands(inputs, attributes);
      if (x[1] !== kernels[1]) throw new GraphError(`kernels have ${kernels[1]} channels, images ${x[1]}`);
      if (inputs.length === 3 && !sameShape(inputs[2].shape, [kernels[0]])) {
        throw new GraphError(`adds ${formatShape(inputs[2].shape)}, which must be [${kernels[0]}]`);
      }
      const [rows, columns] = ([0, 1] as const).map((axis) => {
        const room = x[2 + axis] + padded(attributes, axis) - extent(kernels, attributes, axis);
        if (room < 0) {
          throw new GraphError(`kernels ${formatShape(kernels)} are larger than the padded image ${formatShape(x)}`);
        }
        return Math.floor(room / attributes.strides[axis]) + 1;
      });
      return { shape: [x[0], kernels[0], rows, columns], dtype: 'float32' };
    },
    onnx: kernelForm,
  },
  ConvTranspose: {
    infer: (inputs, attributes) => {
      expectArity(inputs, 2);
      const [x, kernels] = operands(inputs, attributes);
      if (x[1] !== kernels[0]) throw new GraphError(`kernels have ${kernels[0]} channels, images ${x[1]}`);
      const { strides, outputPadding } = attributes;
      if (outputPadding.some((more, axis) => more < 0 || more >= strides[axis])) {
        throw new GraphError(
          `outputPadding ${formatShape(outputPadding)} must be less than the strides ${formatShape(strides)}`,
        );
      }
      const [rows, columns] = ([0, 1] as const).map((axis) => {
        const whole = strides[axis] * (x[2 + axis] - 1) + extent(kernels, attributes, axis) + outputPadding[axis];
        return whole - padded(attributes, axis);
      });
      return { shape: [x[0], kernels[1], rows, columns], dtype: 'float32' };
    },
    onnx: (attributes) => ({
      attributes: { ...kernelForm(attributes).attributes, output_padding: attributes.outputPadding },
    }),
  },
  LayerNormalization: {
    infer: (inputs) => normalized(inputs, 2, true),
    onnx: ({ epsilon }) => ({ attributes: { axis: -1 }, floatAttributes: { epsilon } }),
  },
  RMSNormalization: {
    infer: (inputs) => normalized(inputs, 1, false),
    onnx: ({ epsilon }) => ({ attributes: { axis: -1 }, floatAttributes: { epsilon } }),
  },
  Reshape: {
    infer: (inputs, { shape }) => {
      expectArity(inputs, 1);
      if (sizeOf(shape) !== sizeOf(inputs[0].shape)) {
        throw new GraphError(`cannot reshape ${formatShape(inputs[0].shape)} to ${formatShape(shape)}`);
      }
      return { shape, dtype: inputs[0].dtype };
    },
    onnx: ({ shape }) => ({ sizes: [shape] }),
  },
  Transpose: {
    infer: (inputs, { perm }) => {
      expectArity(inputs, 1);
      const { shape, dtype } = inputs[0];
      if (perm.length !== shape.length || new Set(perm).size !== perm.length) {
        throw new GraphError(`perm ${formatShape(perm)} does not permute rank ${shape.length}`);
      }
      perm.forEach((axis) => expectAxis(axis, shape.length));
      return { shape: perm.map((axis) => shape[axis]), dtype };
    },
    onnx: ({ perm }) => ({ attributes: { perm } }),
  },
  Expand: {
    infer: (inputs, { shape }) => {
      expectArity(inputs, 1);
      const out = broadcast(inputs[0].shape, shape);
      if (!sameShape(out, shape)) {
        throw new GraphError(`cannot expand ${formatShape(inputs[0].shape)} to ${formatShape(shape)}`);
      }
      return { shape, dtype: inputs[0].dtype };
    },
    onnx: ({ shape }) => ({ sizes: [shape] }),
  },
  Concat: {
    infer: (inputs, { axis }) => {
      const first = inputs[0];
      if (first === undefined) throw new GraphError('takes at least one input');
      expectAxis(axis, first.shape.length);
      let size = 0;
      for (const { shape, dtype } of inputs) {
        const fits =
          shape.length === first.shape.length && shape.every((length, at) => at === axis || length === first.shape[at]);
        if (!fits) {
          throw new GraphError(`cannot join ${formatShape(first.shape)} and ${formatShape(shape)} along axis ${axis}`);
        }
        if (dtype !== first.dtype) throw new GraphError(`joins ${first.dtype} with ${dtype}`);
        size += shape[axis];
      }
      return { shape: first.shape.map((length, at) => (at === axis ? size : length)), dtype: first.dtype };
    },
    onnx: ({ axis }) => ({ attributes: { axis } }),
  },
  Slice: {
    infer: (inputs, { axis, start, end }) => {
      expectArity(inputs, 1);
      const { shape, dtype } = inputs[0];
      expectAxis(axis, shape.length);
      if (!(start >= 0 && start <= end && end <= shape[axis])) {
        throw new GraphError(`[${start}, ${end}) is not within axis ${axis} of ${formatShape(shape)}`);
      }
      return { shape: shape.map((size, at) => (at === axis ? end - start : size)), dtype };
    },
    onnx: ({ axis, start, end }) => ({ sizes: [[start], [end]], extraInputs: [[axis]] }),
  },
  Pad: {
    infer: (inputs, { axis, before, after }) => {
      expectArity(inputs, 1);
      const { shape, dtype } = inputs[0];
      expectAxis(axis, shape.length);
      if (before < 0 || after < 0) throw new GraphError(`pads by ${before} and ${after}, both must be 0 or more`);
      return { shape: shape.map((size, at) => (at === axis ? before + size + after : size)), dtype };
    },
    onnx: ({ axis, before, after }, inputs) => {
      const rank = inputs[0].shape.length;
      const pads = Array.from({ length: 2 * rank }, (_, at) => (at === axis ? before : at === rank + axis ? after : 0));
      return { sizes: [pads] };
    },
  },
  Gather: {
    infer: (inputs, { axis }) => {
      expectArity(inputs, 2);
      const [data, indices] = [inputs[0], inputs[1]];
      expectDtype(indices, 'int64');
      expectAxis(axis, data.shape.length);
      return {
        shape: [...data.shape.slice(0, axis), ...indices.shape, ...data.shape.slice(axis + 1)],
        dtype: data.dtype,
      };
    },
    onnx: ({ axis }) => ({ attributes: { axis } }),
  },
  GatherElements: {
    infer: (inputs, { axis }) => {
      expectArity(inputs, 2);
      const [data, indices] = [inputs[0], inputs[1]];
      expectDtype(indices, 'int64');
      expectAxis(axis, data.shape.length);
      const fits =
        data.shape.length === indices.shape.length &&
        data.shape.every((size, at) => at === axis || indices.shape[at] <= size);
      if (!fits) {
        throw new GraphError(`indices ${formatShape(indices.shape)} are not within ${formatShape(data.shape)}`);
      }
      return { shape: indices.shape, dtype: data.dtype };
    },
    onnx: ({ axis }) => ({ attributes: { axis } }),
  },
  ScatterElements: {
    infer: (inputs, { axis }) => {
      expectArity(inputs, 3);
      const [data, indices, updates] = [inputs[0], inputs[1], inputs[2]];
      expectDtype(data, 'float32');
      expectDtype(indices, 'int64');
      expectDtype(updates, 'float32');
      expectAxis(axis, data.shape.length);
      if (!sameShape(indices.shape, updates.shape)) {
        throw new GraphError(`has indices ${formatShape(indices.shape)} for updates ${formatShape(updates.shape)}`);
      }
      const fits =
        data.shape.length === indices.shape.length &&
        data.shape.every((size, at) => at === axis || indices.shape[at] <= size);
      if (!fits) {
        throw new GraphError(`indices ${formatShape(indices.shape)} are not within ${formatShape(data.shape)}`);
      }
      return { shape: data.shape, dtype: 'float32' };
    },
    onnx: ({ axis }) => ({ attributes: { axis }, textAttributes: { reduction: 'add' } }),
  },
  ReduceSum: reduction,
  ReduceMean: reduction,
  ReduceMax: reduction,
  ReduceSumSquare: reduction,
  ArgMin: {
    infer: (inputs, { axis }) => {
      const { shape } = reduce(inputs, { axes: [axis] });
      return { shape, dtype: 'int64' };
    },
    onnx: ({ axis }) => ({ attributes: { axis, keepdims: 1 } }),
  },
  Softmax: lastAxis,
  LogSoftmax: lastAxis,
};
