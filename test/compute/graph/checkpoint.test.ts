import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { RandomStream } from '../../../src/core/random.js';
import { Session } from '../../../src/compute/onnx/session.js';
import * as g from '../../../src/compute/graph/build.js';
import { checkpoint } from '../../../src/compute/graph/checkpoint.js';
import { gradients } from '../../../src/compute/graph/differentiate.js';
import type { Dtype, Value } from '../../../src/compute/graph/ir.js';
import { Graph } from '../../../src/compute/graph/ir.js';
import type { Feeds } from './support.js';
import { runOnnx, tensorData } from './support.js';

type Region = (name: string, inputs: readonly Value[], build: (inputs: readonly Value[]) => Value) => Value;

const plain: Region = (_name, inputs, build) => build(inputs);

/** One random feed for everything that a graph is fed with; integers are below two. */
function feedsOf(graph: Graph): Feeds {
  const random = new RandomStream('checkpoint');
  const element: Readonly<Record<Dtype, () => number>> = {
    float32: () => random.normal(),
    int64: () => random.integer(2),
    bool: () => 1,
  };
  return new Map(
    [...graph.inputs, ...graph.parameters.values()].map((value) => [
      value,
      tensorData(value.dtype, Array.from({ length: value.size }, element[value.dtype])),
    ]),
  );
}

/** Loss and gradients of a model by its inputs `x` and its parameters, with the region as it is or as a checkpoint. */
async function run(model: (graph: Graph, region: Region) => Value, region: Region): Promise<number[][]> {
  const graph = new Graph('model');
  const loss = g.sumAll(model(graph, region));
  const targets = [...graph.inputs.filter(({ dtype }) => dtype === 'float32'), ...graph.parameters.values()];
  const feeds = feedsOf(graph);
  return runOnnx(graph, [loss, ...gradients(loss, targets)], feeds);
}

async function expectSame(model: (graph: Graph, region: Region) => Value): Promise<void> {
  const expected = await run(model, plain);
  const actual = await run(model, checkpoint);
  expect(expected.flat().some((x) => x !== 0)).toBe(true);
  // the same operators on the same operands: equal bit for bit, NaN included
  expect(actual).toEqual(expected);
}

/** x + erf(x W_in) W_out over rows [4, 3]; onnxruntime fuses other activations with their product, this one stays visible. */
function block(x: Value, name: string): Value {
  const { graph } = x;
  const hidden = g.erf(g.gemm(x, graph.parameter(`${name}.in`, [5, 3]), { transB: true }));
  return g.add(x, g.gemm(hidden, graph.parameter(`${name}.out`, [3, 5]), { transB: true }));
}

function stack(graph: Graph, region: Region): Value {
  let x = graph.input('x', [4, 3]);
  for (let i = 0; i < 4; i++) x = region(`block${i}`, [x], ([inner]) => block(inner, `layers.${i}`));
  return g.mul(x, x);
}

describe('a checkpoint has the gradients of what it wraps', () => {
  it('in a stack', () => expectSame(stack));

  it('where regions share their weights, also with the outside', () =>
    expectSame((graph, region) => {
      let x = graph.input('x', [4, 3]);
      for (let i = 0; i < 3; i++) x = region(`block${i}`, [x], ([inner]) => block(inner, 'shared'));
      return g.mul(
        x,
        g.gemm(g.exp(x), g.matMul(graph.parameter('shared.out', [3, 5]), graph.parameter('shared.in', [5, 3]))),
      );
    }));

  it('with several inputs, integers among them, and one input given twice', () =>
    expectSame((graph, region) => {
      const [x, y] = [graph.input('x', [4, 3]), graph.input('y', [3])];
      const ids = graph.input('ids', [4], 'int64');
      return region('several', [x, y, ids, x], ([a, b, rows, c]) =>
        g.mul(g.add(g.sigmoid(a), b), g.gather(g.mul(c, b), rows)),
      );
    }));

  it('that uses an outer value without being given it', () =>
    expectSame((graph, region) => {
      const x = graph.input('x', [4, 3]);
      const scale = g.exp(graph.parameter('scale', [3]));
      return region('outer', [x], ([inner]) => g.mul(g.tanh(inner), scale));
    }));

  it('whose end has a gradient of its own, or is its input', () =>
    expectSame((graph, region) => {
      const x = graph.input('x', [4, 3]);
      const own = region('own', [x], ([inner]) => {
        const y = g.exp(inner);
        return g.withGradient(y, {
          name: 'halved',
          inputs: [inner],
          gradient: (d) => [g.mul(g.mul(d, y), d.graph.scalar(0.5))],
        });
      });
      return g.mul(
        own,
        region('nothing', [own], ([inner]) => inner),
      );
    }));

  it('with a gradient that passes straight through to a parameter that computes nothing', () =>
    expectSame((graph, region) => {
      const x = graph.input('x', [4, 3]);
      return region('through', [x], ([inner]) => {
        const z = g.mul(graph.parameter('encoder', [4, 3]), inner);
        const code = g.mul(inner, graph.scalar(1));
        return g.exp(g.withGradient(code, { name: 'straight', inputs: [z], gradient: (d) => [d] }));
      });
    }));

  it('inside another one', () =>
    expectSame((graph, region) => {
      const x = graph.input('x', [4, 3]);
      return region('outside', [x], ([outer]) =>
        region('inside', [block(outer, 'first')], ([inner]) => g.sigmoid(block(inner, 'second'))),
      );
    }));

  it('when the gradient that comes in is infinite or not a number', () =>
    expectSame((graph, region) => {
      const x = graph.input('x', [4, 3]);
      const y = region('finite', [x], ([inner]) => g.tanh(inner));
      const weights = Float32Array.from({ length: 12 }, (_, i) => [Infinity, NaN, 1, -2][i % 4]);
      return g.mul(y, graph.constant(weights, [4, 3]));
    }));
});

describe('a checkpoint', () => {
  it('differentiates what is needed alone', async () => {
    const graph = new Graph('frozen');
    const [x, gate] = [graph.input('x', [4, 3]), graph.input('gate', [3])];
    // no gradient flows through the comparison, which must not matter where none is asked for
    const y = checkpoint('gated', [x], ([inner]) =>
      g.mul(inner, g.cast(g.less(gate, g.scalarLike(gate, 0)), 'float32')),
    );
    const [dx] = gradients(g.sumAll(y), [x]);
    const feeds = new Map(feedsOf(graph)).set(gate, Float32Array.of(-1, 1, -1));
    expect(await runOnnx(graph, [dx], feeds)).toEqual([[1, 0, 1, 1, 0, 1, 1, 0, 1, 1, 0, 1]]);
  });

  it('must use its inputs through its argument', () => {
    const graph = new Graph('closure');
    const x = graph.input('x', [3]);
    const y = checkpoint('closure', [x], () => g.exp(x));
    expect(() => gradients(g.sumAll(y), [x])).toThrow(/second pass uses %x/);
    expect(() => checkpoint('none', [], () => x)).toThrow(/at least one input/);
  });
});

describe('what onnxruntime runs', () => {
  /** The operators in the order in which they ran: names of nodes, such as `Erf:d_block1.57`. */
  async function trace(region: Region, reversed = false): Promise<string[]> {
    const graph = new Graph('trace');
    const loss = g.sumAll(stack(graph, region));
    const targets = [...graph.parameters.values()];
    if (reversed) targets.reverse();
    const found = gradients(loss, targets);
    const outputs = Object.fromEntries(targets.map(({ name }, i) => [name, found[i]]));
    const folder = mkdtempSync(join(tmpdir(), 'editrl-trace-'));
    try {
      const session = await Session.compile(graph, outputs, { threads: 1, profilePrefix: join(folder, 'trace') });
      const feeds = [...feedsOf(graph)];
      await session.run(
        Object.fromEntries(feeds.filter(([{ name }]) => name === 'x').map(([{ name }, data]) => [name, data])),
        new Map(feeds.map(([{ name }, data]) => [name, { data: data as Float32Array }])),
      );
      await session.dispose();
      const [file] = readdirSync(folder);
      const events = JSON.parse(readFileSync(join(folder, file), 'utf8')) as {
        name: string;
        cat: string;
        ts: number;
      }[];
      return events
        .filter(({ name, cat }) => cat === 'Node' && name.endsWith('_kernel_time'))
        .sort((a, b) => a.ts - b.ts)
        .map(({ name }) => name);
    } finally {
      rmSync(folder, { recursive: true });
    }
  }

  const count = (events: readonly string[], op: string): number =>
    events.filter((name) => name.startsWith(`${op}:`)).length;

  it('computes the inside of every region a second time: no activation is shared', async () => {
    expect(count(await trace(plain), 'Erf')).toBe(4);
    expect(count(await trace(checkpoint), 'Erf')).toBe(8);
  });

  it.each([false, true])(
    'finishes one region before it recomputes the one before (outputs reversed: %s)',
    async (reversed) => {
      const events = await trace(checkpoint, reversed);
      const first = (start: string): number => events.findIndex((name) => name.startsWith(start));
      const last = (start: string): number => events.findLastIndex((name) => name.startsWith(start));
      for (let i = 3; i > 0; i--) {
        expect(first(`Erf:d_block${i}.`)).toBeGreaterThan(0);
        expect(last(`Gemm:d_block${i}.`)).toBeLessThan(first(`Erf:d_block${i - 1}.`));
      }
    },
  );
});
