/** Sessions that are fed weights in half precision. */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { InternalError } from '../../../src/core/errors.js';
import { floatsToHalves, HalfTensor } from '../../../src/core/half.js';
import { RandomStream } from '../../../src/core/random.js';
import { Session, type SessionOptions, SessionPool, type WeightData } from '../../../src/compute/onnx/session.js';
import * as g from '../../../src/compute/graph/build.js';
import { checkpoint } from '../../../src/compute/graph/checkpoint.js';
import { gradients } from '../../../src/compute/graph/differentiate.js';
import { Graph, type Value } from '../../../src/compute/graph/ir.js';
import { toOnnx } from '../../../src/compute/graph/onnx.js';
import { testFolder } from '../../support/folder.js';

const LAYERS = 3;
const WIDTH = 8;
const names = ['table', ...Array.from({ length: LAYERS }, (_, i) => `w${i}`)];
const held = new Map(
  names.map((name) => {
    const random = new RandomStream('half', name);
    const rows = name === 'table' ? 2 * WIDTH : WIDTH;
    const data = Float32Array.from({ length: rows * WIDTH }, () => random.normal());
    return [name, new HalfTensor([rows, WIDTH], floatsToHalves(data))] as const;
  }),
);
const widened: WeightData = new Map([...held].map(([name, { data }]) => [name, { data }]));
const halves = new Set(names);

/** Rows of a table through layers, and their products with two parts of the table: everything that graphs do with weights. */
function chain(graph: Graph, checkpointed = false): { readonly y: Value; readonly x: Value } {
  const table = graph.parameter('table', [2 * WIDTH, WIDTH]);
  const x = graph.input('x', [2, WIDTH]);
  let rows = g.add(x, g.gather(table, graph.input('ids', [2], 'int64')));
  for (let i = 0; i < LAYERS; i++) {
    const layer = (inner: Value): Value =>
      g.tanh(g.gemm(inner, graph.parameter(`w${i}`, [WIDTH, WIDTH]), { transB: true }));
    rows = checkpointed ? checkpoint(`layer ${i}`, [rows], ([inner]) => layer(inner)) : layer(rows);
  }
  const parts = [0, WIDTH].map((start) => g.gemm(rows, g.slice(table, 0, start, start + WIDTH), { transB: true }));
  return { x, y: g.concat(parts, 1) };
}

function outputs(graph: Graph, checkpointed = false): Record<string, Value> {
  const { x, y } = chain(graph, checkpointed);
  const [dx] = gradients(g.reduceSum(g.mul(y, y), [0, 1]), [x]);
  return { y, dx };
}

const feeds = { x: Float32Array.from({ length: 2 * WIDTH }, (_, i) => Math.sin(i)), ids: BigInt64Array.of(3n, 9n) };

async function result(options: SessionOptions, weights: WeightData, checkpointed = false, pool?: SessionPool) {
  const graph = new Graph('chain');
  const session = await Session.compile(graph, outputs(graph, checkpointed), { threads: 1, ...options }, pool);
  const found = await session.run(feeds, weights);
  await session.dispose();
  return found;
}

describe('weights in half precision', () => {
  it.each([false, true])('give the same bits as what they are widened to; checkpointed: %s', async (checkpointed) => {
    const wanted = await result({}, widened, checkpointed);
    expect(await result({ halves }, held, checkpointed)).toEqual(wanted);
    expect(await result({ halves }, held, checkpointed, new SessionPool(held))).toEqual(wanted);
    expect(wanted.dx.some((x) => Number(x) !== 0)).toBe(true);
  });

  it.each([false, true])('may be used in any way; with free sizes: %s', async (free) => {
    const graph = new Graph('uses');
    const table = graph.parameter('table', [2 * WIDTH, WIDTH]);
    const [w0, w1] = ['w0', 'w1'].map((name) => graph.parameter(name, [WIDTH, WIDTH]));
    const lower = g.slice(table, 0, WIDTH, 2 * WIDTH);
    const uses = {
      itself: w0,
      left: g.gemm(w0, w1),
      twice: g.mul(w0, w0),
      lower,
      corner: g.tanh(g.slice(g.slice(table, 0, 2, 9), 1, 1, 5)),
      rowsOfPart: g.gather(g.slice(table, 0, 3, 8), graph.input('ids', [2], 'int64')),
      products: g.gemm(lower, lower, { transB: true }),
    };
    const run = async (options: SessionOptions, weights: WeightData) => {
      const session = await Session.compile(
        graph,
        uses,
        { threads: 1, ...options },
        free ? new SessionPool() : undefined,
      );
      const found = await session.run({ ids: BigInt64Array.of(4n, 0n) }, weights);
      await session.dispose();
      return found;
    };
    const wanted = await run({}, widened);
    expect(wanted.itself).toEqual(widened.get('w0')?.data);
    expect(await run({ halves }, held)).toEqual(wanted);
  });

  it('are widened as this program widens them, the smallest too', async () => {
    const finite = Uint16Array.from({ length: 2 ** 16 }, (_, bits) => ((bits & 0x7c00) === 0x7c00 ? 0 : bits));
    const all = new HalfTensor([256, 256], finite);
    const graph = new Graph('all');
    const session = await Session.compile(
      graph,
      { all: graph.parameter('all', [256, 256]) },
      { threads: 1, halves: new Set(['all']) },
    );
    expect((await session.run({}, new Map([['all', all]])))['all']).toEqual(all.data);
    await session.dispose();
  });

  it('are an input for each use, so that none is kept for a later one', () => {
    const graph = new Graph('chain');
    const { parameters, packed, halves: inputs } = toOnnx(graph, new Map(Object.entries(outputs(graph))), { halves });
    expect([...parameters.keys(), ...packed.keys()]).toEqual([]);
    const uses = [...inputs.values()].map(({ parameter }) => parameter).sort();
    // Looked up, and both parts forward and backward; each layer forward and backward.
    expect(uses).toEqual(['table', 'table', 'table', 'table', 'table', 'w0', 'w0', 'w1', 'w1', 'w2', 'w2']);
  });

  it('are widened right before they are used', async () => {
    const folder = testFolder('halves');
    const graph = new Graph('chain');
    const options = { threads: 1, halves, profilePrefix: join(folder, 'profile') };
    const session = await Session.compile(graph, outputs(graph), options);
    await session.run(feeds, held);
    await session.dispose();
    const [file] = readdirSync(folder);
    const events = JSON.parse(readFileSync(join(folder, file), 'utf8')) as {
      readonly name: string;
      readonly args?: { readonly op_name?: string };
    }[];
    const order = events
      .filter(({ name }) => name.endsWith('_kernel_time'))
      .map(({ args }) => args?.op_name)
      .filter((op) => op === 'Cast' || op?.includes('Gemm') === true)
      // With what follows it fused to it.
      .map((op) => (op === 'FusedGemm' ? 'Gemm' : op));
    // The rows of the table, then each layer and both parts of the table forward and backward: what is widened, and its product.
    const products = 2 * (LAYERS + 2);
    expect(order).toEqual(['Cast', ...Array.from({ length: products }, () => ['Cast', 'Gemm']).flat()]);
  });

  it('are rejected as other inputs', async () => {
    await expect(result({ halves }, widened)).rejects.toThrow(InternalError);
    const narrow = new Map([...held, ['w1', new HalfTensor([2, 2], new Uint16Array(4))] as const]);
    await expect(result({ halves }, narrow)).rejects.toThrow('w1 needs float16[8, 8]');
  });
});
