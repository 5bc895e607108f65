import { describe, expect, it } from 'vitest';
import { InternalError } from '../../../src/core/errors.js';
import * as g from '../../../src/compute/graph/build.js';
import type { Value } from '../../../src/compute/graph/ir.js';
import { Graph } from '../../../src/compute/graph/ir.js';
import { toOnnx } from '../../../src/compute/graph/onnx.js';
import { verifyGraph } from '../../../src/compute/graph/verify.js';

/** A small graph and its values, which a test may break in ways that the types forbid. */
function sound() {
  const graph = new Graph('sound');
  const x = graph.input('x', [2, 3]);
  const w = graph.parameter('w', [3]);
  const c = graph.constant(Float32Array.of(1, 2, 3), [3]);
  const sum = g.add(x, w);
  const product = g.mul(sum, c);
  return { graph, x, w, c, sum, product, outputs: new Map([['y', product]]) };
}

type Sound = ReturnType<typeof sound>;

function corrupt(value: Value, changes: Partial<Record<keyof Value, unknown>>): void {
  Object.assign(value, changes);
}

const corruptions: Readonly<Record<string, (parts: Sound) => void>> = {
  'a shape that is not the rule of the operator': ({ sum }) => corrupt(sum, { shape: [3, 2] }),
  'a dtype that is not the rule of the operator': ({ product }) => corrupt(product, { dtype: 'int64' }),
  'an input of the wrong shape': ({ x }) => corrupt(x, { shape: [4, 3] }),
  'a constant that lost elements': ({ c }) => corrupt(c, { origin: { kind: 'constant', data: Float32Array.of(1) } }),
  'an input that the graph does not know': ({ graph }) => void graph.inputs.pop(),
  'a parameter that the graph does not know': ({ graph }) => void graph.parameters.delete('w'),
  'a value of another graph': ({ x }) => corrupt(x, { graph: new Graph('other') }),
  'a value that is older than what it uses': ({ sum }) => corrupt(sum, { id: 0 }),
};

describe('the verifier', () => {
  it('passes a sound graph', () => {
    const { graph, outputs } = sound();
    expect(() => verifyGraph(graph, outputs)).not.toThrow();
  });

  for (const [what, spoil] of Object.entries(corruptions)) {
    it(`finds ${what}, before the runtime sees it`, () => {
      const parts = sound();
      spoil(parts);
      expect(() => verifyGraph(parts.graph, parts.outputs)).toThrow(InternalError);
      expect(() => toOnnx(parts.graph, parts.outputs)).toThrow(InternalError);
    });
  }

  it('quotes the value', () => {
    const parts = sound();
    corrupt(parts.sum, { shape: [3, 2] });
    expect(() => verifyGraph(parts.graph, parts.outputs)).toThrow(
      /%3: float32\[3, 2\] should be float32\[2, 3\] by the rule of Add/,
    );
  });
});
