/** Shape rules of the matrix products and of rotary positions. */
import { GraphError } from '../../core/errors.js';
import { formatShape, sameShape } from '../ir.js';
import type { OperatorTable } from './spec.js';
import { broadcast, expectArity, expectDtype } from './spec.js';

export const products: OperatorTable<'MatMul' | 'Gemm' | 'RotaryEmbedding'> = {
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
};
