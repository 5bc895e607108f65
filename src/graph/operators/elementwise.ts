/** Shape rules of the elementwise operators. */
import { GraphError } from '../../core/errors.js';
import type { ValueType } from '../ir.js';
import type { OperatorTable } from './spec.js';
import { broadcast, expectArity, expectDtype } from './spec.js';

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

type Elementwise =
  | ('Add' | 'Sub' | 'Mul' | 'Div' | 'Min' | 'Max')
  | (
      | 'Neg'
      | 'Exp'
      | 'Log'
      | 'Sqrt'
      | 'Reciprocal'
      | 'Sigmoid'
      | 'Tanh'
      | 'Relu'
      | 'Erf'
      | 'Abs'
      | 'Sin'
      | 'Cos'
      | 'Gelu'
    )
  | ('Equal' | 'Less' | 'Greater' | 'Where' | 'Cast');

export const elementwise: OperatorTable<Elementwise> = {
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
};
