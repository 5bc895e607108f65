import { describe, expect, it } from 'vitest';
import { RandomStream } from '../../../src/core/random.js';
import { Session } from '../../../src/compute/onnx/session.js';
import { Graph, type OpType, type Shape, sizeOf, topological, type Value } from '../../../src/compute/graph/ir.js';
import * as g from '../../../src/compute/graph/build.js';
import { gradients, vectorJacobian } from '../../../src/compute/graph/differentiate.js';
import { gradientRules } from '../../../src/compute/graph/gradients.js';
import { type CaseInput, type Draw, type OperatorCase, operatorCases } from './operator_cases.js';
import { evaluate } from './reference.js';
import { centralDifferences, expectClose, type Feeds, runOnnx, tensorData } from './support.js';

/** float32 arithmetic of onnxruntime against the reference. */
const FLOAT32 = 2e-5;
/** Central differences in float64; what remains is that a graph's constants are float32. */
const DIFFERENCES = 1e-6;

function draw(random: RandomStream, how: Draw, count: number): number[] {
  if (how === 'spread') {
    // multiples of 1/16 moved by an offset of the input's own: no two elements, of one input or of two, are close
    const offset = (0.2 + 0.6 * random.uniform()) / 16;
    return random.shuffled(Array.from({ length: count }, (_, i) => Math.fround((i - count / 2) / 16 + offset)));
  }
  const one = (): number => {
    switch (how) {
      case 'normal':
        return random.normal();
      case 'positive':
        return 0.3 + 2 * random.uniform();
      case 'signed':
        return (random.uniform() < 0.5 ? -1 : 1) * (0.3 + 2 * random.uniform());
      case 'bit':
        return random.integer(2);
      default:
        return random.integer(how.below);
    }
  };
  return Array.from({ length: count }, () => Math.fround(one()));
}

interface Problem {
  readonly graph: Graph;
  readonly random: RandomStream;
  readonly values: Value[];
  readonly feeds: Feeds;
}

function problem(name: string, inputs: readonly CaseInput[]): Problem {
  const random = new RandomStream('gradients', name);
  const graph = new Graph('case');
  const feeds = new Map<Value, ReturnType<typeof tensorData>>();
  const values = inputs.map(({ shape, dtype, draw: how }, i) => {
    const value = graph.input(`x${i}`, shape, dtype);
    feeds.set(value, tensorData(dtype, draw(random, how, sizeOf(shape))));
    return value;
  });
  return { graph, random, values, feeds };
}

const normal = (...shapes: readonly Shape[]): CaseInput[] =>
  shapes.map((shape) => ({ shape, dtype: 'float32', draw: 'normal', gradient: true }));

/**
 * Checks `output` and its gradients by `targets`: on onnxruntime against the float64 reference, and the gradient graph in the
 * reference against central differences. The output is projected on random weights, so that each element matters differently.
 */
async function check({ graph, random, feeds }: Problem, output: Value, targets: readonly Value[]): Promise<void> {
  const exact = new Map(
    [...feeds].map(([value, data]) => [value, Float64Array.from(Array.from<number | bigint, number>(data, Number))]),
  );
  const outputs = [output];
  if (targets.length > 0) {
    const weights = graph.constant(Float32Array.from(draw(random, 'signed', output.size)), output.shape);
    const loss = g.sumAll(g.mul(output, weights));
    const found = gradients(loss, targets);
    outputs.push(...found);
    evaluate(found, exact).forEach((gradient, i) => {
      expect(found[i].shape).toEqual(targets[i].shape);
      const differences = centralDifferences(exact.get(targets[i])!, () => evaluate([loss], exact)[0][0]);
      expectClose(gradient, differences, DIFFERENCES, `gradient of ${String(targets[i])}`);
    });
  }
  const reference = evaluate(outputs, exact);
  const onnx = await runOnnx(graph, outputs, feeds);
  reference.forEach((values, i) => expectClose(onnx[i], values, FLOAT32, i === 0 ? 'forward' : `gradient ${i}`));
}

async function checkCase(op: OpType, { label, inputs, attributes }: OperatorCase): Promise<void> {
  const made = problem(`${op} ${label}`, inputs);
  const output = g.apply(op, made.values, attributes);
  const targets = made.values.filter((_, i) => inputs[i].gradient);
  expect(targets.length > 0 && gradientRules[op] === 'none').toBe(false);
  await check(made, output, targets);
}

describe('every operator agrees with the reference, and its gradient with central differences', () => {
  for (const op of Object.keys(operatorCases) as OpType[]) {
    it(op, async () => {
      const cases: readonly OperatorCase[] = operatorCases[op];
      expect(cases.length).toBeGreaterThanOrEqual(2);
      const rule = gradientRules[op];
      expect(cases.some(({ inputs }) => inputs.some((input) => input.gradient))).toBe(rule !== 'none');
      for (const one of cases) {
        await checkCase(op, one).catch((error: unknown) => {
          throw new Error(`${op}, ${one.label}: ${(error as Error).message}`, { cause: error });
        });
      }
    });
  }
});

describe('one value in several places', () => {
  const binary: OpType[] = ['Add', 'Sub', 'Mul', 'Div', 'MatMul'];
  for (const op of binary) {
    it(`${op}(x, x)`, async () => {
      const made = problem(op, [{ ...normal([3, 3])[0], draw: 'signed' }]);
      const [x] = made.values;
      await check(made, g.apply(op, [x, x], {}), [x]);
    });
  }

  it('sums what flows back along a branch, a chain and a skip', async () => {
    const made = problem('reuse', normal([2, 3], [3]));
    const [x, b] = made.values;
    const h = g.tanh(g.add(x, b));
    const y = g.add(g.mul(h, x), g.reduceMean(g.sigmoid(h), [0]));
    await check(made, g.add(y, g.mul(b, h)), [x, b]);
  });

  it('joins a value with itself', async () => {
    const made = problem('concat', normal([2, 3]));
    const [x] = made.values;
    await check(made, g.concat([x, g.exp(x), x], 1), [x]);
  });

  it('shares the gradient of a maximum between the elements that attain it', async () => {
    const { graph, values } = problem('ties', normal([2, 4]));
    const [x] = values;
    const rows = g.reduceMax(x, [1]);
    const [dx] = gradients(g.sumAll(g.mul(rows, graph.constant(Float32Array.of(6, 8), [2, 1]))), [x]);
    const feeds = new Map([[x, Float32Array.of(1, 3, 3, 2, 5, 5, 5, 5)]]);
    expect(await runOnnx(graph, [dx], feeds)).toEqual([[0, 3, 3, 0, 2, 2, 2, 2]]);
  });

  it('differentiates by a value and by what it is computed from', async () => {
    const made = problem('inner', normal([4]));
    const [x] = made.values;
    const h = g.exp(x);
    const [dx, dh] = gradients(g.sumAll(g.mul(h, h)), [x, h]);
    const exact = new Map([[x, [0.5, -1, 0, 1]]]);
    const [actual, inner] = evaluate([dx, dh], exact);
    expectClose(
      inner,
      [0.5, -1, 0, 1].map((v) => 2 * Math.exp(v)),
      1e-12,
      'by h',
    );
    expectClose(
      actual,
      [0.5, -1, 0, 1].map((v) => 2 * Math.exp(2 * v)),
      1e-12,
      'by x',
    );
  });
});

describe('composites', () => {
  it('an embedding whose rows are used twice, with a tied head', async () => {
    const made = problem('tied', [
      ...normal([5, 3]),
      { shape: [6], dtype: 'int64', draw: { below: 5 }, gradient: false },
    ]);
    const [table, ids] = made.values;
    const h = g.gather(table, ids);
    const logp = g.logSoftmax(g.gemm(g.relu(h), table, { transB: true }));
    await check(made, g.gatherElements(logp, g.reshape(ids, [6, 1]), 1), [table]);
  });

  it('a chain of twenty thousand operators, which recursion could not follow', () => {
    const made = problem('deep', normal([2]));
    let [x] = made.values;
    for (let i = 0; i < 20_000; i++) x = g.neg(x);
    expect(gradients(g.sumAll(x), made.values)).toHaveLength(1);
  });
});

describe('if no gradient flows', () => {
  it('an input that nothing uses', () => {
    const { values } = problem('unused', normal([2], [2]));
    const loss = g.sumAll(g.exp(values[0]));
    expect(() => gradients(loss, values)).toThrow(/does not depend on %x1/);
    const [used, unused] = vectorJacobian(loss, loss.graph.scalar(1), values);
    expect(used?.shape).toEqual([2]);
    expect(unused).toBeNull();
  });

  it('a comparison, cast to numbers', () => {
    const { values } = problem('comparison', normal([2], [2]));
    const loss = g.sumAll(g.cast(g.less(values[0], values[1]), 'float32'));
    expect(() => gradients(loss, [values[0]])).toThrow(
      expect.objectContaining({
        message: expect.stringContaining('Cast passes no gradient, but %2') as string,
        where: 'graph case',
        next: expect.stringContaining('Stop the gradient before it') as string,
      }),
    );
  });

  it('where it begins is no matter of how it came to be', async () => {
    const { graph, values, feeds } = problem('cast', normal([2], [2]));
    const h = g.cast(g.less(values[0], values[1]), 'float32');
    const [dh] = gradients(g.sumAll(g.mul(h, graph.scalar(3))), [h]);
    expect(await runOnnx(graph, [dh], feeds)).toEqual([[3, 3]]);
  });

  it('the caches of rotary positions', () => {
    const { values } = problem('caches', [
      ...normal([1, 1, 2, 4], [3, 2], [3, 2]),
      { shape: [1, 2], dtype: 'int64', draw: { below: 3 }, gradient: false },
    ]);
    const [x, cos, sin, positions] = values;
    const loss = g.sumAll(g.rotary(x, cos, sin, positions));
    expect(() => gradients(loss, [cos])).toThrow(/RotaryEmbedding passes no gradient, but %x1/);
  });

  it('an operator whose rule covers some of its forms', () => {
    const { values } = problem('gather', [
      ...normal([2, 3]),
      { shape: [4], dtype: 'int64', draw: { below: 3 }, gradient: false },
    ]);
    const loss = g.sumAll(g.gather(values[0], values[1], 1));
    expect(() => gradients(loss, [values[0]])).toThrow(/Gather is defined for axis 0, not 1/);
  });

  it.each([
    ['two elements', [2, 2], 1],
    ['another axis', [1, 1], 0],
  ] as const)('gathering %s, whose gradient would need a sum', (_, shape, axis) => {
    const { values } = problem('gather elements', [
      ...normal([2, 3]),
      { shape, dtype: 'int64', draw: { below: 2 }, gradient: false },
    ]);
    const loss = g.sumAll(g.gatherElements(values[0], values[1], axis));
    expect(() => gradients(loss, [values[0]])).toThrow(
      'the gradient of GatherElements is defined for one element along the last axis',
    );
  });

  it('does not mind such an operator beside the path', async () => {
    const made = problem('beside', normal([2, 3], [3]));
    const [x, y] = made.values;
    const chosen = g.gather(y, g.reshape(g.argMin(x, 1), [2]));
    const sign = g.cast(g.less(x, g.scalarLike(x, 0)), 'float32');
    await check(made, g.mul(g.reshape(chosen, [2, 1]), sign), [y]);
  });

  it('something that is not a scalar', () => {
    const { values } = problem('vector', normal([2]));
    expect(() => gradients(g.exp(values[0]), values)).toThrow(/only a scalar/);
  });
});

describe('a gradient of its own', () => {
  it('replaces the inside, and gets the inputs that need one', async () => {
    const made = problem('custom', normal([3], [3]));
    const [x, y] = made.values;
    const heard: (readonly boolean[])[] = [];
    const doubled = g.withGradient(g.mul(g.exp(x), y), {
      name: 'doubled',
      inputs: [x, y],
      gradient: (d, needed) => {
        heard.push(needed);
        return [g.mul(d, d.graph.scalar(2)), null];
      },
    });
    const [dx] = gradients(g.sumAll(g.mul(doubled, doubled.graph.scalar(3))), [x]);
    expect(await runOnnx(made.graph, [dx], made.feeds)).toEqual([[6, 6, 6]]);
    expect(heard).toEqual([[true, false]]);
  });

  it('may pass the gradient to what the value is not computed from', async () => {
    const made = problem('straight through', normal([3]));
    const [z] = made.values;
    const code = made.graph.input('code', [3]);
    const y = g.withGradient(g.mul(code, made.graph.scalar(1)), { name: 'through', inputs: [z], gradient: (d) => [d] });
    const [dz] = gradients(g.sumAll(g.mul(y, y)), [z]);
    const feeds = new Map([...made.feeds, [code, Float32Array.of(1, 2, 3)] as const]);
    expect(await runOnnx(made.graph, [dz], feeds)).toEqual([[2, 4, 6]]);
  });

  it('is spread over what it is given for, and has to fit it', async () => {
    const made = problem('spread', normal([2, 3]));
    const [x] = made.values;
    const withGradient = (gradient: (d: Value) => Value): Value => {
      const y = g.withGradient(g.exp(x), { name: 'own', inputs: [x], gradient: (d) => [gradient(d)] });
      return gradients(g.sumAll(y), [x])[0];
    };
    const one = withGradient((d) => d.graph.scalar(2));
    const rows = withGradient((d) => d.graph.constant(Float32Array.of(1, 2), [2, 1]));
    const several = withGradient((d) => g.expand(d.graph.scalar(1), [4, 2, 3]));
    expect(await runOnnx(made.graph, [one, rows, several], made.feeds)).toEqual([
      [2, 2, 2, 2, 2, 2],
      [1, 1, 1, 2, 2, 2],
      [4, 4, 4, 4, 4, 4],
    ]);
    expect(() => withGradient((d) => g.expand(d.graph.scalar(1), [2, 4]))).toThrow(/does not fit \[2, 3\]/);
  });

  it('belongs only to computed values, and depends only on earlier ones', () => {
    const { values } = problem('leaf', normal([3]));
    const [x] = values;
    const custom = { name: 'own', inputs: [x], gradient: (d: Value) => [d] };
    expect(() => g.withGradient(x, custom)).toThrow(/only a computed value/);
    const y = g.exp(x);
    expect(() => g.withGradient(y, { ...custom, inputs: [g.exp(y)] })).toThrow(/is not older than its output/);
    expect(() => gradients(g.sumAll(g.withGradient(y, { ...custom, gradient: () => [] })), [x])).toThrow(
      /0 gradients for 1 inputs/,
    );
  });
});

it('sums the rows of a large table one after another, the same at every run', async () => {
  const [vocabulary, width, count] = [5000, 48, 3000];
  const graph = new Graph('embedding');
  const table = graph.parameter('table', [vocabulary, width]);
  const ids = graph.input('ids', [count], 'int64');
  const d = graph.input('d', [count, width]);
  const [gradient] = gradients(g.sumAll(g.mul(g.gather(table, ids), d)), [table]);
  const stream = new RandomStream('large table');
  // Few different ids, so that many rows meet.
  const feeds = {
    ids: BigInt64Array.from({ length: count }, () => BigInt(4990 + stream.integer(10))),
    d: Float32Array.from({ length: count * width }, () => stream.normal()),
  };
  const expected = new Float32Array(vocabulary * width);
  feeds.ids.forEach((id, n) => {
    for (let k = 0; k < width; k++) expected[Number(id) * width + k] += feeds.d[n * width + k];
  });
  const session = await Session.compile(graph, { gradient }, { threads: 2 });
  for (let run = 0; run < 5; run++) {
    const found = (await session.run(feeds))['gradient'] as Float32Array;
    expect(Buffer.from(found.buffer).equals(Buffer.from(expected.buffer))).toBe(true);
  }
  await session.dispose();
  expect(topological([gradient]).map(({ shape }) => shape)).not.toContainEqual([count, vocabulary]);
});
