/** Normalisations for runtimes that scale and shift all samples alike. */
import * as ort from 'onnxruntime-node';
import { expect, it } from 'vitest';
import { RandomStream } from '../../../src/core/random.js';
import { layerNormalization } from '../../../src/compute/graph/build.js';
import { Graph } from '../../../src/compute/graph/ir.js';
import { outputName, toOnnx } from '../../../src/compute/graph/onnx.js';

it('are scaled and shifted by each sample’s vectors in operators of their own', async () => {
  const graph = new Graph('norms');
  const random = new RandomStream('norms');
  const [x, scale, shift] = [
    graph.input('x', [2, 3, 80]),
    graph.input('scale', [2, 1, 80]),
    graph.input('shift', [2, 1, 80]),
  ];
  const own = layerNormalization(x, scale, shift, 1e-6);
  const all = layerNormalization(own, graph.parameter('weight', [80]), graph.parameter('bias', [80]), 1e-6);
  const numbers = new Map(
    [...graph.inputs, ...graph.parameters.values()].map(({ name, shape, size }) => [
      name,
      new ort.Tensor(
        'float32',
        Float32Array.from({ length: size }, () => random.normal()),
        shape,
      ),
    ]),
  );
  const run = async (sharedNorms: boolean) => {
    const { bytes } = toOnnx(graph, new Map(Object.entries({ own, all })), { sharedNorms });
    const session = await ort.InferenceSession.create(bytes, { graphOptimizationLevel: 'disabled' });
    const found = await session.run(Object.fromEntries(numbers));
    await session.release();
    const names = Buffer.from(bytes).toString('latin1');
    return { found, muls: names.split('@scaled').length - 1 };
  };
  const [wanted, split] = [await run(false), await run(true)];
  for (const name of ['own', 'all'].map(outputName)) {
    const [a, b] = [wanted, split].map(({ found }) => found[name].data as Float32Array);
    a.forEach((one, i) => expect(Math.abs(one - b[i])).toBeLessThan(1e-5));
  }
  // The name of a product is written where it is made and where it is read; the second norm stays as it is.
  expect([wanted.muls, split.muls]).toEqual([0, 2]);
});
