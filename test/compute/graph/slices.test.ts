import { describe, expect, it } from 'vitest';
import { Session } from '../../../src/compute/onnx/session.js';
import { add, mul, slice, sumAll } from '../../../src/compute/graph/build.js';
import { gradients } from '../../../src/compute/graph/differentiate.js';
import { Graph, topological } from '../../../src/compute/graph/ir.js';

/** d/dx of sum_k k * (slice k of x)^2 for consecutive slices of [3, 6] along axis 1, and the operators that it took. */
async function slicedGradient(
  cuts: readonly (readonly [number, number])[],
): Promise<{ values: number[]; ops: string[] }> {
  const graph = new Graph('slices');
  const x = graph.parameter('x', [3, 6]);
  const terms = cuts.map(([start, end], k) => {
    const part = slice(x, 1, start, end);
    return sumAll(mul(graph.scalar(k + 1), mul(part, part)));
  });
  const [d] = gradients(terms.reduce(add), [x]);
  const session = await Session.compile(graph, { d });
  const data = Float32Array.from({ length: 18 }, (_, i) => i - 7);
  const out = await session.run({}, new Map([['x', { data }]]));
  await session.dispose();
  const ops = topological([d]).flatMap(({ origin }) => (origin.kind === 'node' ? [origin.op] : []));
  return { values: [...(out.d as Float32Array)], ops };
}

function expected(cuts: readonly (readonly [number, number])[]): number[] {
  return Array.from({ length: 18 }, (_, i) => {
    const factor = cuts.reduce((sum, [start, end], k) => sum + (i % 6 >= start && i % 6 < end ? k + 1 : 0), 0);
    return 2 * factor * (i - 7) + 0;
  });
}

describe('gradients of slices', () => {
  it.each([
    [
      'in order',
      [
        [0, 2],
        [2, 5],
        [5, 6],
      ],
    ],
    [
      'out of order',
      [
        [2, 6],
        [0, 2],
      ],
    ],
  ] as [string, [number, number][]][])('are joined where they cut the axis up, %s', async (_name, cuts) => {
    const { values, ops } = await slicedGradient(cuts);
    expect(values.map((x) => x + 0)).toEqual(expected(cuts));
    expect(ops).toContain('Concat');
    expect(ops).not.toContain('Pad');
  });

  it.each([
    [
      'a gap',
      [
        [0, 2],
        [3, 6],
      ],
    ],
    [
      'an overlap',
      [
        [0, 4],
        [3, 6],
      ],
    ],
    [
      'the end of the axis',
      [
        [0, 2],
        [2, 5],
      ],
    ],
    ['one piece', [[1, 4]]],
  ] as [string, [number, number][]][])('are padded and added where they leave %s', async (_name, cuts) => {
    const { values, ops } = await slicedGradient(cuts);
    expect(values.map((x) => x + 0)).toEqual(expected(cuts));
    expect(ops).toContain('Pad');
  });

  it('are padded and added where they lie along different axes', async () => {
    const graph = new Graph('axes');
    const x = graph.parameter('x', [3, 3]);
    const squares = [slice(x, 1, 0, 1), slice(x, 0, 1, 3)].map((part) => sumAll(mul(part, part)));
    const [d] = gradients(squares.reduce(add), [x]);
    const session = await Session.compile(graph, { d });
    const out = await session.run({}, new Map([['x', { data: Float32Array.of(1, 2, 3, 4, 5, 6, 7, 8, 9) }]]));
    await session.dispose();
    expect([...(out.d as Float32Array)]).toEqual([2, 0, 0, 16, 10, 12, 28, 16, 18]);
  });
});
