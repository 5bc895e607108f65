/** Distributions over large vocabularies, which are computed piece by piece, against plain float64 loops and against whole logits. */
import { describe, expect, it } from 'vitest';
import { InternalError } from '../../../src/core/errors.js';
import { RandomStream } from '../../../src/core/random.js';
import { Session } from '../../../src/compute/onnx/session.js';
import { mul, sumAll } from '../../../src/compute/graph/build.js';
import { gradients } from '../../../src/compute/graph/differentiate.js';
import { Graph, topological, type Value } from '../../../src/compute/graph/ir.js';
import { sumOf, type Product } from '../../../src/compute/nets/lora.js';
import { tokenDistribution, wholeDistribution } from '../../../src/compute/nets/token_distribution.js';

const rows = 6;
/** Three pieces where it is one part, and where the second begins within the second of them, four. */
const vocabulary = 17_000;
const secondPart = 9000;
const temperature = 0.7;
/** Widths and scales of the two products that logits are the sum of, as those of a layer and its adapter. */
const layout = [
  { width: 6, scale: 1 },
  { width: 2, scale: 1.5 },
];
const stream = new RandomStream('pieces');
const normal = (size: number, scale: number): Float32Array =>
  Float32Array.from({ length: size }, () => scale * stream.normal());
const tables = layout.map(({ width }) => normal(vocabulary * width, 1.5));
const hidden = layout.map(({ width }) => normal(rows * width, 1));
// The first and the last token of a piece and of a part, and one twice.
const targets = BigInt64Array.of(0n, 8191n, 8192n, 8999n, 9000n, 8999n);
const weights = Float32Array.of(0.5, -0.3, 0.2, 0.7, -0.1, 0.4);

interface Found {
  readonly logProbs: Float32Array;
  readonly entropy: Float32Array;
  /** Gradients of the rows of each product, then of the tables. */
  readonly gradients: readonly Float32Array[];
}

async function compute(second: number | null, learning: boolean, whole = false): Promise<Found> {
  const graph = new Graph('pieces');
  const products: Product[] = layout.map(({ width, scale }, i) => ({
    rows: graph.parameter(`rows${i}`, [rows, width]),
    table: graph.parameter(`table${i}`, [vocabulary, width]),
    scale,
  }));
  const ids = graph.input('targets', [rows], 'int64');
  const part = second === null ? null : graph.constant(new BigInt64Array(vocabulary).fill(1n, second), [vocabulary]);
  const { logProbs, entropy } = whole
    ? wholeDistribution(sumOf(products), ids, temperature, part)
    : tokenDistribution(products, ids, { temperature, secondPart: second, learning });
  const outputs: Record<string, Value> = { logProbs, entropy };
  const wanted = [...products.map((product) => product.rows), ...products.map(({ table }) => table)];
  if (learning) {
    const loss = sumAll(mul(logProbs, graph.constant(weights, [rows])));
    gradients(loss, wanted).forEach((gradient, i) => (outputs[`d${i}`] = gradient));
  }
  const session = await Session.compile(graph, outputs, { threads: 2 });
  const named = [...hidden.map((data, i) => [`rows${i}`, { data }] as const)];
  const all = new Map([...named, ...tables.map((data, i) => [`table${i}`, { data }] as const)]);
  const out = await session.run({ targets }, all);
  await session.dispose();
  return {
    logProbs: out['logProbs'] as Float32Array,
    entropy: out['entropy'] as Float32Array,
    gradients: learning ? wanted.map((_, i) => out[`d${i}`] as Float32Array) : [],
  };
}

/** The same in float64. */
function plain(second: number | null): { logProbs: number[]; entropy: number[]; gradients: Float64Array[] } {
  const found = {
    logProbs: [] as number[],
    entropy: [] as number[],
    gradients: [...hidden, ...tables].map(({ length }) => new Float64Array(length)),
  };
  for (let n = 0; n < rows; n++) {
    const target = Number(targets[n]);
    const x = Float64Array.from({ length: vocabulary }, (_, v) => {
      if (second !== null && v >= second !== target >= second) return -Infinity;
      return layout.reduce((sum, { width, scale }, i) => {
        let dot = 0;
        for (let k = 0; k < width; k++) dot += hidden[i][n * width + k] * tables[i][v * width + k];
        return sum + (scale * dot) / temperature;
      }, 0);
    });
    const top = x.reduce((a, b) => Math.max(a, b));
    const logSum = top + Math.log(x.reduce((sum, value) => sum + Math.exp(value - top), 0));
    found.logProbs.push(x[target] - logSum);
    found.entropy.push(x.reduce((sum, v) => (v === -Infinity ? sum : sum - Math.exp(v - logSum) * (v - logSum)), 0));
    x.forEach((value, v) => {
      const slope = weights[n] * ((v === target ? 1 : 0) - Math.exp(value - logSum));
      layout.forEach(({ width, scale }, i) => {
        for (let k = 0; k < width; k++) {
          const factor = (scale / temperature) * slope;
          found.gradients[i][n * width + k] += factor * tables[i][v * width + k];
          found.gradients[2 + i][v * width + k] += factor * hidden[i][n * width + k];
        }
      });
    });
  }
  return found;
}

/** The norm of the difference over the norm of what is expected. */
function relative(actual: ArrayLike<number>, expected: ArrayLike<number>): number {
  expect(actual.length).toBe(expected.length);
  let [difference, size] = [0, 0];
  for (let i = 0; i < expected.length; i++) {
    difference += (actual[i] - expected[i]) ** 2;
    size += expected[i] ** 2;
  }
  return Math.sqrt(difference / size);
}

describe.each([
  ['one vocabulary', null],
  ['a vocabulary of two parts', secondPart],
])('log-probabilities piece by piece: %s', (_, second) => {
  it('have the values and gradients of a plain computation', async () => {
    const expected = plain(second);
    const found = await compute(second, true);
    expect(relative(found.logProbs, expected.logProbs)).toBeLessThan(1e-6);
    expect(relative(found.entropy, expected.entropy)).toBeLessThan(1e-6);
    found.gradients.forEach((gradient, i) => expect(relative(gradient, expected.gradients[i])).toBeLessThan(1e-6));
  });

  it('have those of whole logits', async () => {
    const [found, whole] = [await compute(second, true), await compute(second, true, true)];
    expect(relative(found.logProbs, whole.logProbs)).toBeLessThan(1e-6);
    found.gradients.forEach((gradient, i) => expect(relative(gradient, whole.gradients[i])).toBeLessThan(1e-6));
  });

  it('have the same bits if no gradient is wanted', async () => {
    const { logProbs, entropy } = await compute(second, true);
    expect(await compute(second, false)).toEqual({ logProbs, entropy, gradients: [] });
  });
});

it('no tensor has a row for each row of the batch and a column for each token, and none but trained tables their gradients', () => {
  const graph = new Graph('frozen');
  const count = 512;
  const table = graph.parameter('table', [vocabulary, 6]);
  const x = graph.parameter('rows', [count, 6]);
  const ids = graph.input('targets', [count], 'int64');
  const options = { temperature, secondPart: null, learning: true };
  const { logProbs, entropy } = tokenDistribution([{ rows: x, table, scale: 1 }], ids, options);
  const sizes = (outputs: readonly Value[]): Value[] =>
    topological(outputs).filter(({ origin }) => origin.kind === 'node');
  const frozen = sizes([entropy, ...gradients(sumAll(logProbs), [x])]);
  expect(Math.max(...frozen.map(({ size }) => size))).toBeLessThanOrEqual(count * 8192);
  expect(frozen.filter(({ shape }) => shape[0] === vocabulary)).toEqual([]);
  const trained = sizes(gradients(sumAll(logProbs), [table]));
  expect(trained.filter(({ shape }) => shape[0] === vocabulary)).toHaveLength(1);
});

it('rejects gradients of log-probabilities that were made without', () => {
  const graph = new Graph('without');
  const x = graph.parameter('rows', [2, 6]);
  const products = [{ rows: x, table: graph.parameter('table', [vocabulary, 6]), scale: 1 }];
  const options = { temperature, secondPart: null, learning: false };
  const { logProbs } = tokenDistribution(products, graph.input('targets', [2], 'int64'), options);
  expect(() => gradients(sumAll(logProbs), [x])).toThrow(InternalError);
});
