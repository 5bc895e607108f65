/** Shape rules of the operators that rearrange, cut, join and look up. */
import { GraphError } from '../../core/errors.js';
import { formatShape, sameShape, sizeOf } from '../ir.js';
import type { OperatorTable } from './spec.js';
import { broadcast, expectArity, expectAxis, expectDtype } from './spec.js';

type Form =
  'Reshape' | 'Transpose' | 'Expand' | 'Concat' | 'Slice' | 'Pad' | 'Gather' | 'GatherElements' | 'ScatterElements';

export const form: OperatorTable<Form> = {
  Reshape: {
    infer: (inputs, { shape }) => {
      expectArity(inputs, 1);
      if (sizeOf(shape) !== sizeOf(inputs[0].shape)) {
        throw new GraphError(`cannot give ${formatShape(inputs[0].shape)} the shape ${formatShape(shape)}`);
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
        throw new GraphError(`indices ${formatShape(indices.shape)} do not lie within ${formatShape(data.shape)}`);
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
        throw new GraphError(`indices ${formatShape(indices.shape)} do not lie within ${formatShape(data.shape)}`);
      }
      return { shape: data.shape, dtype: 'float32' };
    },
    onnx: ({ axis }) => ({ attributes: { axis }, textAttributes: { reduction: 'add' } }),
  },
};
