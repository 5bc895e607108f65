/** Shape rules of the normalisations along the last axis. */
import { GraphError } from '../../core/errors.js';
import type { ValueType } from '../ir.js';
import { formatShape } from '../ir.js';
import type { OperatorTable } from './spec.js';
import { expectArity, expectDtype } from './spec.js';

/** The normalised type, given how many vectors follow it; a vector is [width], or [batch, 1, width] where the first input has three axes. */
function normalised(inputs: readonly ValueType[], vectors: number, perSample: boolean): ValueType {
  expectArity(inputs, 1 + vectors);
  for (const input of inputs) expectDtype(input, 'float32');
  const { shape } = inputs[0];
  const width = shape.at(-1);
  if (width === undefined) throw new GraphError('takes one axis or more');
  const allowed = [[width], ...(perSample && shape.length === 3 ? [[shape[0], 1, width]] : [])];
  for (const vector of inputs.slice(1)) {
    if (allowed.some((one) => one.join() === vector.shape.join())) continue;
    throw new GraphError(
      `scales or shifts by ${formatShape(vector.shape)}; allowed: ${allowed.map(formatShape).join(', ')}`,
    );
  }
  return { shape, dtype: 'float32' };
}

export const norms: OperatorTable<'LayerNormalization' | 'RMSNormalization'> = {
  LayerNormalization: {
    infer: (inputs) => normalised(inputs, 2, true),
    onnx: ({ epsilon }) => ({ attributes: { axis: -1 }, floatAttributes: { epsilon } }),
  },
  RMSNormalization: {
    infer: (inputs) => normalised(inputs, 1, false),
    onnx: ({ epsilon }) => ({ attributes: { axis: -1 }, floatAttributes: { epsilon } }),
  },
};
