/** Shape rules of the reductions (which keep reduced axes with size one) and of the softmax family. */
import { GraphError } from '../../core/errors.js';
import type { ValueType } from '../ir.js';
import { formatShape } from '../ir.js';
import type { OperatorTable } from './spec.js';
import { expectArity, expectAxis, expectDtype } from './spec.js';

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

type Reduction = 'ReduceSum' | 'ReduceMean' | 'ReduceMax' | 'ReduceSumSquare' | 'ArgMin' | 'Softmax' | 'LogSoftmax';

export const reductions: OperatorTable<Reduction> = {
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
