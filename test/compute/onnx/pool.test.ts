import * as ort from 'onnxruntime-node';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { EngineError } from '../../../src/core/errors.js';
import { Session, SessionPool, type WeightData } from '../../../src/compute/onnx/session.js';
import * as g from '../../../src/compute/graph/build.js';
import { Graph } from '../../../src/compute/graph/ir.js';

afterEach(() => vi.restoreAllMocks());

const table = Float32Array.of(1, 0, 0, 1, 1, 1);
const added = Float32Array.of(10, 20, 30);

/** Rows of a table [3, 2], looked up by ids, times the table itself and something added; and the middle of a mask that grows with the ids. */
function rowsTimesTable(count: number, pool: SessionPool): Promise<Session> {
  const graph = new Graph(`${count} rows`);
  const weight = graph.parameter('table', [3, 2]);
  const rows = g.gather(weight, graph.input('ids', [count], 'int64'));
  const product = g.gemm(rows, weight, { transB: true });
  const numbers = graph.constant(
    Float32Array.from({ length: count }, (_, i) => i),
    [count, 1],
  );
  const y = graph.scope('layers.0', () => g.add(g.add(product, graph.parameter('added', [3])), numbers));
  const flat = graph.scope('layers.1', () => g.reshape(y, [3 * count]));
  return Session.compile(graph, { flat: g.slice(flat, 0, 0, 3 * count - 1) }, { threads: 1 }, pool);
}

const ids = (...values: number[]): BigInt64Array => BigInt64Array.from(values, BigInt);
const fed = (): WeightData => new Map([['table', { data: table.slice() }], ['added', { data: added.slice() }]]); // prettier-ignore

describe('sessions of a pool', () => {
  it('are compiled once for all sizes, and freed with the last of them', async () => {
    const create = vi.spyOn(ort.InferenceSession, 'create');
    const pool = new SessionPool();
    const [two, three, again] = await Promise.all([2, 3, 2].map((count) => rowsTimesTable(count, pool)));
    expect(create).toHaveBeenCalledTimes(1);
    const weights = fed();
    expect((await two.run({ ids: ids(0, 2) }, weights)).flat).toEqual(Float32Array.of(11, 20, 31, 12, 22));
    const ofThree = Float32Array.of(11, 20, 31, 11, 22, 32, 13, 22);
    expect((await three.run({ ids: ids(0, 1, 0) }, weights)).flat).toEqual(ofThree);
    await two.dispose();
    await again.dispose();
    expect((await three.run({ ids: ids(0, 1, 0) }, weights)).flat).toEqual(ofThree);
    await three.dispose();
    await (await rowsTimesTable(2, pool)).dispose();
    expect(create).toHaveBeenCalledTimes(2);
  });

  it('hold what follows from frozen weights alone', async () => {
    const graph = new Graph('merged');
    const [w, a, b] = [graph.parameter('w', [3, 2]), graph.parameter('a', [1, 2]), graph.parameter('b', [3, 1])];
    const y = g.gemm(graph.input('x', [1, 2]), g.add(w, g.gemm(b, a, { alpha: 2 })), { transB: true });
    const weights = new Map(
      Object.entries({ w: table, a: [1, -1], b: [1, 2, 3] }).map(([name, x]) => [name, { data: Float32Array.from(x) }]),
    );
    const session = await Session.compile(graph, { y }, {}, new SessionPool(weights));
    expect(session.parameters.size).toBe(0);
    // w + 2 b a = [[3, -2], [4, -3], [7, -5]]
    expect((await session.run({ x: Float32Array.of(1, 10) })).y).toEqual(Float32Array.of(-17, -26, -43));
    await session.dispose();
  });

  it('get frozen weights as inputs if a size-dependent value is computed from them', async () => {
    const graph = new Graph('reshaped');
    const y = g.gemm(graph.input('x', [1, 3]), g.reshape(graph.parameter('w', [3, 2]), [2, 3]), { transB: true });
    const weights = new Map([['w', { data: table }]]);
    const session = await Session.compile(graph, { y }, {}, new SessionPool(weights));
    expect([...session.parameters]).toEqual(['w']);
    expect((await session.run({ x: Float32Array.of(1, 10, 100) }, weights)).y).toEqual(Float32Array.of(1, 111));
    await session.dispose();
  });

  it('are compiled once for all rows of a parameter that they read', async () => {
    const create = vi.spyOn(ort.InferenceSession, 'create');
    const pool = new SessionPool();
    const [one, two] = await Promise.all(
      [1, 2].map((end) => {
        const graph = new Graph(`to ${end}`);
        const part = g.slice(graph.parameter('table', [3, 2]), 0, 0, end);
        return Session.compile(graph, { y: g.gemm(graph.input('x', [1, 2]), part, { transB: true }) }, {}, pool);
      }),
    );
    const x = Float32Array.of(3, 4);
    expect((await one.run({ x }, fed())).y).toEqual(Float32Array.of(3));
    expect((await two.run({ x }, fed())).y).toEqual(Float32Array.of(3, 4));
    expect(create).toHaveBeenCalledTimes(1);
    await one.dispose();
    await two.dispose();
  });

  it('contain frozen weights of products, and get all others as inputs', async () => {
    const frozen = fed();
    const session = await rowsTimesTable(2, new SessionPool(new Map([['table', frozen.get('table')!]])));
    expect([...session.parameters.keys()].sort()).toEqual(['added', 'table']);
    const before = (await session.run({ ids: ids(0, 2) }, frozen)).flat;
    expect(before).toEqual(Float32Array.of(11, 20, 31, 12, 22));
    frozen.get('added')!.data.fill(0);
    expect((await session.run({ ids: ids(0, 2) }, frozen)).flat).toEqual(Float32Array.of(1, 0, 1, 2, 2));
    // The product's copy stays as it was; what is looked up is the array itself.
    frozen.get('table')!.data.fill(5);
    expect((await session.run({ ids: ids(0, 2) }, frozen)).flat).toEqual(Float32Array.of(5, 5, 10, 6, 6));
    await session.dispose();
  });

  it('are compiled again after a failure', async () => {
    const pool = new SessionPool();
    vi.spyOn(ort.InferenceSession, 'create').mockRejectedValueOnce(new Error('refused'));
    await expect(rowsTimesTable(2, pool)).rejects.toThrow(EngineError);
    await (await rowsTimesTable(2, pool)).dispose();
  });
});
