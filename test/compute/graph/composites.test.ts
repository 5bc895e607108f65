/** Composites against PyTorch; test/fixture_scripts/graph_gradients.py makes the numbers. */
import { readFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import type { TensorData } from '../../../src/compute/onnx/tensors.js';
import * as g from '../../../src/compute/graph/build.js';
import { gradients } from '../../../src/compute/graph/differentiate.js';
import { Graph, type Value } from '../../../src/compute/graph/ir.js';
import { expectClose, runOnnx, tensorData } from './support.js';

interface Stored {
  readonly shape: number[];
  readonly data: number[];
}

interface Composite {
  readonly inputs: Readonly<Record<string, Stored>>;
  readonly weights: Stored;
  readonly output: Stored;
  readonly gradients: Readonly<Record<string, Stored>>;
}

type Name = 'attention' | 'rms_norm' | 'swiglu' | 'cross_entropy' | 'rotary';

const fixtures = JSON.parse(readFileSync(new URL('fixtures/composites.json', import.meta.url), 'utf8')) as Record<
  Name,
  Composite
>;

/** What the inputs of a fixture are called and how its output is built from them. */
const builders: { readonly [K in Name]: (inputs: Readonly<Record<string, Value>>, graph: Graph) => Value } = {
  // causal, two query heads to a key head: [batch, key heads, queries of a group * positions, depth]
  attention: ({ q, k, v }, graph) => {
    const mask = graph.constant(
      Uint8Array.from({ length: 25 }, (_, i) => Number(i % 5 <= Math.floor(i / 5))),
      [5, 5],
    );
    const grouped = g.reshape(q, [2, 2, 2, 5, 3]);
    const [keys, values] = [g.reshape(k, [2, 2, 1, 5, 3]), g.reshape(v, [2, 2, 1, 5, 3])];
    const scores = g.mul(g.matMul(grouped, g.transpose(keys, [0, 1, 2, 4, 3])), graph.scalar(1 / Math.sqrt(3)));
    const p = g.softmax(g.where(mask, scores, graph.scalar(-1e9)));
    return g.reshape(g.matMul(p, values), [2, 4, 5, 3]);
  },
  rms_norm: ({ x, weight }, graph) => {
    const mean = g.reduceMean(g.mul(x, x), [1]);
    return g.mul(g.mul(x, g.reciprocal(g.sqrt(g.add(mean, graph.scalar(1e-5))))), weight);
  },
  swiglu: ({ x, gate, up, down }) => {
    const opened = g.gemm(x, gate, { transB: true });
    const inner = g.mul(g.mul(opened, g.sigmoid(opened)), g.gemm(x, up, { transB: true }));
    return g.gemm(inner, down, { transB: true });
  },
  cross_entropy: ({ logits, targets }) =>
    g.reshape(g.neg(g.gatherElements(g.logSoftmax(logits), g.reshape(targets, [6, 1]), 1)), [6]),
  rotary: ({ x, positions }, graph) => {
    const cache = (f: (angle: number) => number): Value =>
      graph.constant(
        Float32Array.from({ length: 20 }, (_, i) => f(Math.floor(i / 2) * 10000 ** (-(i % 2) / 2))),
        [10, 2],
      );
    return g.rotary(x, cache(Math.cos), cache(Math.sin), positions);
  },
};

for (const name of Object.keys(builders) as Name[]) {
  it(`${name} agrees with PyTorch`, async () => {
    const { inputs, weights, output, gradients: expected } = fixtures[name];
    const graph = new Graph(name);
    const feeds = new Map<Value, TensorData>();
    const values: Record<string, Value> = {};
    for (const [key, { shape, data }] of Object.entries(inputs)) {
      const dtype = key in expected ? 'float32' : 'int64';
      values[key] = graph.input(key, shape, dtype);
      feeds.set(values[key], tensorData(dtype, data));
    }
    const made = builders[name](values, graph);
    const loss = g.sumAll(g.mul(made, graph.constant(Float32Array.from(weights.data), weights.shape)));
    const targets = Object.keys(expected);
    const found = gradients(
      loss,
      targets.map((key) => values[key]),
    );
    const [actual, ...slopes] = await runOnnx(graph, [made, ...found], feeds);
    expect(made.shape).toEqual(output.shape);
    expectClose(actual, output.data, 2e-6, 'output');
    targets.forEach((key, i) => expectClose(slopes[i], expected[key].data, 5e-6, `gradient of ${key}`));
  });
}
