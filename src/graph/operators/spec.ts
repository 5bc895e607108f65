/** What an operator specifies about its output and its ONNX form, and the parts that shape rules are made of. */
import { GraphError } from '../../core/errors.js';
import type { OpAttributes, OpType } from '../attributes.js';
import type { Dtype, Shape, ValueType } from '../ir.js';
import { formatShape } from '../ir.js';

/** The ONNX form of a node: attributes, and attributes that ONNX expects as int64 inputs, starting with those that depend on sizes. */
export interface OnnxForm {
  readonly attributes?: Readonly<Record<string, number | readonly number[]>>;
  readonly textAttributes?: Readonly<Record<string, string>>;
  readonly floatAttributes?: Readonly<Record<string, number>>;
  readonly sizes?: readonly (readonly number[])[];
  readonly extraInputs?: readonly (readonly number[])[];
}

export interface OperatorSpec<K extends OpType> {
  /** Shape and dtype of the output; raises GraphError (without naming the operator) where the inputs do not fit. */
  readonly infer: (inputs: readonly ValueType[], attributes: OpAttributes[K]) => ValueType;
  readonly onnx?: (attributes: OpAttributes[K], inputs: readonly ValueType[]) => OnnxForm;
}

export type OperatorTable<K extends OpType> = { readonly [P in K]: OperatorSpec<P> };

export function expectArity(inputs: readonly ValueType[], count: number): void {
  if (inputs.length !== count) {
    throw new GraphError(`takes ${count} ${count === 1 ? 'input' : 'inputs'}, got ${inputs.length}`);
  }
}

export function expectDtype(input: ValueType, ...allowed: readonly Dtype[]): void {
  if (!allowed.includes(input.dtype)) throw new GraphError(`takes ${allowed.join(' or ')}, got ${input.dtype}`);
}

export function expectAxis(axis: number, rank: number): void {
  if (!Number.isInteger(axis) || axis < 0 || axis >= rank) {
    throw new GraphError(`axis ${axis} is not within rank ${rank}`);
  }
}

/** The numpy broadcast of two shapes. */
export function broadcast(a: Shape, b: Shape): Shape {
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
