import { describe, expect, it } from 'vitest';
import { EngineError, InternalError } from '../../../src/core/errors.js';
import { RandomStream } from '../../../src/core/random.js';
import type { TensorData } from '../../../src/compute/onnx/tensors.js';
import { compileSeconds, Session } from '../../../src/compute/onnx/session.js';
import * as g from '../../../src/compute/graph/build.js';
import { checkpoint } from '../../../src/compute/graph/checkpoint.js';
import { gradients } from '../../../src/compute/graph/differentiate.js';
import { Graph } from '../../../src/compute/graph/ir.js';

async function withSession<T>(session: Promise<Session>, use: (session: Session) => Promise<T>): Promise<T> {
  const open = await session;
  try {
    return await use(open);
  } finally {
    await open.dispose();
  }
}

/** y = x w for x [2, 2] and a parameter w [2, 2]. */
function product(): Promise<Session> {
  const graph = new Graph('product');
  const x = graph.input('x', [2, 2]);
  return Session.compile(graph, { y: g.matMul(x, graph.parameter('w', [2, 2])) }, { threads: 1 });
}

describe('a session', () => {
  it('counts the seconds that it took to compile, and none for running', async () => {
    const before = compileSeconds();
    await withSession(product(), async (session) => {
      const compiled = compileSeconds();
      expect(compiled).toBeGreaterThan(before);
      await session.run({ x: new Float32Array(4) }, new Map([['w', { data: new Float32Array(4) }]]));
      expect(compileSeconds()).toBe(compiled);
    });
  });

  it('reads weights where they lie, so that an optimizer may change them between runs', () =>
    withSession(product(), async (session) => {
      const w = { data: Float32Array.of(1, 0, 0, 1) };
      const weights = new Map([['w', w]]);
      const x = Float32Array.of(1, 2, 3, 4);
      expect((await session.run({ x }, weights)).y).toEqual(x);
      w.data.set([0, 1, 1, 0]);
      expect((await session.run({ x }, weights)).y).toEqual(Float32Array.of(2, 1, 4, 3));
      expect(session.runs).toBe(2);
      expect(session.seconds).toBeGreaterThan(0);
    }));

  it('writes outputs to given buffers, else into new arrays', () =>
    withSession(product(), async (session) => {
      const weights = new Map([['w', { data: Float32Array.of(2, 0, 0, 2) }]]);
      const into = new Float32Array(4);
      const first = await session.run({ x: Float32Array.of(1, 2, 3, 4) }, weights, { y: into });
      expect(first.y).toBe(into);
      expect(into).toEqual(Float32Array.of(2, 4, 6, 8));
      const second = await session.run({ x: Float32Array.of(0, 0, 0, 1) }, weights);
      expect(second.y).toEqual(Float32Array.of(0, 0, 0, 2));
      expect(into).toEqual(Float32Array.of(2, 4, 6, 8));
    }));

  it('feeds one buffer to inputs of several shapes', async () => {
    const graph = new Graph('shapes');
    const [a, b] = [graph.input('a', [2, 3]), graph.input('b', [3, 2])];
    const data = Float32Array.of(1, 2, 3, 4, 5, 6);
    await withSession(Session.compile(graph, { y: g.matMul(a, b) }), async (session) => {
      expect((await session.run({ a: data, b: data })).y).toEqual(Float32Array.of(22, 28, 49, 64));
    });
  });

  it('gives inputs, constants and one value under two names as outputs', async () => {
    const graph = new Graph('names');
    const x = graph.input('x', [2]);
    const twice = g.add(x, x);
    const outputs = { x, twice, again: twice, one: graph.scalar(1), next: g.exp(g.neg(twice)) };
    await withSession(Session.compile(graph, outputs), async (session) => {
      const found = await session.run({ x: Float32Array.of(0, 0.5) });
      expect(found.x).toEqual(Float32Array.of(0, 0.5));
      expect(found.twice).toEqual(Float32Array.of(0, 1));
      expect(found.again).toEqual(found.twice);
      expect(found.one).toEqual(Float32Array.of(1));
      expect((found.next as Float32Array)[1]).toBeCloseTo(Math.exp(-1), 6);
    });
  });

  it('asks only for what its outputs depend on', async () => {
    const graph = new Graph('pruned');
    const x = graph.input('x', [1]);
    graph.input('unused', [1]);
    graph.parameter('frozen', [1]);
    await withSession(Session.compile(graph, { y: g.exp(x) }), async (session) => {
      expect([...session.inputs.keys()]).toEqual(['x']);
      expect(session.parameters.size).toBe(0);
      expect((await session.run({ x: Float32Array.of(0) })).y).toEqual(Float32Array.of(1));
    });
  });

  it('reads rows of a parameter where they lie, also once they have changed', async () => {
    const graph = new Graph('rows');
    const table = graph.parameter('table', [4, 2]);
    const x = graph.input('x', [1, 2]);
    const outputs = {
      product: g.gemm(x, g.slice(table, 0, 1, 3), { transB: true }),
      column: g.neg(g.slice(table, 1, 0, 1)),
      given: g.slice(table, 0, 3, 4),
      whole: g.gemm(x, table, { transB: true }),
    };
    await withSession(Session.compile(graph, outputs), async (session) => {
      expect([...session.parameters]).toEqual(['table']);
      const data = Float32Array.of(0, 0, 1, 2, 3, 4, 5, 6);
      const weights = new Map([['table', { data }]]);
      const feeds = { x: Float32Array.of(1, 10) };
      const first = await session.run(feeds, weights);
      expect(first).toMatchObject({ product: Float32Array.of(21, 43), given: Float32Array.of(5, 6) });
      expect(first.column).toEqual(Float32Array.of(-0, -1, -3, -5));
      expect(first.whole).toEqual(Float32Array.of(0, 21, 43, 65));
      data[2] = 7;
      expect((await session.run(feeds, weights)).product).toEqual(Float32Array.of(27, 43));
      const others = new Map([['table', { data: new Float32Array(8) }]]);
      expect((await session.run(feeds, others)).product).toEqual(Float32Array.of(0, 0));
      await expect(session.run(feeds)).rejects.toThrow(InternalError);
    });
  });

  it('rejects rows of a parameter of another size', async () => {
    const graph = new Graph('rows');
    const rows = g.slice(graph.parameter('table', [4, 2]), 0, 1, 3);
    await withSession(Session.compile(graph, { product: g.neg(rows) }), async (session) => {
      const weights = new Map([['table', { data: new Float32Array(12) }]]);
      await expect(session.run({}, weights)).rejects.toThrow('table needs float32[4, 2], got Float32Array of 12');
    });
  });

  it('feeds the flag of checkpoints itself', async () => {
    const graph = new Graph('flag');
    const x = graph.input('x', [2]);
    const [dx] = gradients(g.sumAll(checkpoint('region', [x], ([inner]) => g.mul(inner, inner))), [x]);
    await withSession(Session.compile(graph, { dx }), async (session) => {
      expect((await session.run({ x: Float32Array.of(1, -2) })).dx).toEqual(Float32Array.of(2, -4));
    });
  });

  it('reports what is missing or does not fit', () =>
    withSession(product(), async (session) => {
      const weights = new Map([['w', { data: new Float32Array(4) }]]);
      await expect(session.run({}, weights)).rejects.toThrow(/input x is missing/);
      await expect(session.run({ x: new Float32Array(4) })).rejects.toThrow(InternalError);
      await expect(session.run({ x: new Float32Array(3) }, weights)).rejects.toThrow(/got Float32Array of 3/);
      await expect(session.run({ x: new BigInt64Array(4) }, weights)).rejects.toThrow(/got BigInt64Array of 4/);
    }));

  it('raises EngineError for a provider that is missing', async () => {
    const graph = new Graph('elsewhere');
    const y = g.exp(graph.input('x', [1]));
    await expect(Session.compile(graph, { y }, { provider: 'dml' as 'cuda' })).rejects.toThrow(EngineError);
  });
});

describe('training is deterministic', () => {
  it('twenty runs of one training graph at two threads are equal bit for bit', async () => {
    const [rows, width, vocabulary, heads] = [256, 64, 96, 4];
    const graph = new Graph('training');
    const random = new RandomStream('determinism');
    const ids = graph.input('ids', [rows], 'int64');
    const table = graph.parameter('table', [vocabulary, width]);
    let h = g.gather(table, ids);
    for (let layer = 0; layer < 2; layer++) {
      const split = (name: string) => {
        const projected = g.gemm(h, graph.parameter(`${layer}.${name}`, [width, width]), { transB: true });
        return g.transpose(g.reshape(projected, [4, rows / 4, heads, width / heads]), [0, 2, 1, 3]);
      };
      const scores = g.matMul(split('q'), g.transpose(split('k'), [0, 1, 3, 2]));
      const mixed = g.matMul(g.softmax(scores), split('v'));
      h = g.add(h, g.reshape(g.transpose(mixed, [0, 2, 1, 3]), [rows, width]));
      h = g.mul(h, g.reciprocal(g.sqrt(g.add(g.reduceMean(g.mul(h, h), [1]), graph.scalar(1e-5)))));
    }
    const logp = g.logSoftmax(g.gemm(h, table, { transB: true }));
    const loss = g.neg(g.sumAll(g.gatherElements(logp, g.reshape(ids, [rows, 1]), 1)));
    const names = [...graph.parameters.keys()];
    const found = gradients(loss, [...graph.parameters.values()]);
    const outputs = { loss, ...Object.fromEntries(names.map((name, i) => [`d:${name}`, found[i]])) };

    const feeds = { ids: BigInt64Array.from({ length: rows }, () => BigInt(random.integer(vocabulary))) };
    const weights = new Map(
      [...graph.parameters].map(([name, { size }]) => [
        name,
        { data: Float32Array.from({ length: size }, () => 0.2 * random.normal()) },
      ]),
    );
    await withSession(Session.compile(graph, outputs, { threads: 2 }), async (session) => {
      const bytes = (result: Record<string, TensorData>): Buffer[] =>
        Object.values(result).map(({ buffer, byteOffset, byteLength }) => Buffer.from(buffer, byteOffset, byteLength));
      const first = bytes(await session.run(feeds, weights)).map((buffer) => Buffer.from(buffer));
      expect(first).toHaveLength(1 + names.length);
      for (let run = 1; run < 20; run++) {
        const again = bytes(await session.run(feeds, weights));
        expect(again.map((buffer, i) => buffer.equals(first[i]))).toEqual(first.map(() => true));
      }
    });
  });
});
