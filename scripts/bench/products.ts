/**
 * How much slower a training graph is than its matrix products alone: the same products on operands of the same shapes, all in a second
 * session of the same process, in turns with the graph. Also the sum of the products as separate runs, which includes the start of each run.
 */
import { Session } from '../../src/compute/onnx/session.js';
import type { TensorData } from '../../src/compute/onnx/tensors.js';
import { apply, slice, reshape } from '../../src/compute/graph/build.js';
import { Graph, sizeOf, topological, type NodeOrigin, type Value, type ValueType } from '../../src/compute/graph/ir.js';
import type { Weights } from '../../src/models/files.js';
import { median } from './short_run.js';

const ROUNDS = 15;

/** Prints the times of one graph, whose inputs `feed` makes. */
export async function besideProducts(
  name: string,
  graph: Graph,
  outputs: Readonly<Record<string, Value>>,
  weights: Weights,
  feed: (type: ValueType, size: number) => TensorData,
): Promise<void> {
  const whole = await Session.compile(graph, outputs);
  const feeds: Record<string, TensorData> = {};
  for (const [input, type] of whole.inputs) feeds[input] = feed(type, sizeOf(type.shape));
  const { session: products, feeds: operands, flops } = await productsAlone(Object.values(outputs));
  const graphMs: number[] = [];
  const bareMs: number[] = [];
  // The learner writes each gradient into the buffer of the previous one.
  const into = await whole.run(feeds, weights);
  for (let round = 0; round < ROUNDS + 2; round++) {
    const start = performance.now();
    await whole.run(feeds, weights, into);
    const middle = performance.now();
    await products.run(operands);
    const bare = performance.now() - middle;
    if (round < 2) continue;
    graphMs.push(middle - start);
    bareMs.push(bare);
  }
  const [g, b] = [median(graphMs), median(bareMs)];
  const ratio = median(graphMs.map((ms, i) => ms / bareMs[i]));
  const summed = await productsOneByOne(Object.values(outputs));
  console.log(
    `${name}: ${topological(Object.values(outputs)).filter(({ origin }) => origin.kind === 'node').length} nodes, ${(flops / 1e9).toFixed(2)} GFLOP in products`,
  );
  console.log(`  forward and backward  ${g.toFixed(1)} ms  ${(flops / g / 1e6).toFixed(1)} GFLOP/s`);
  console.log(`  its products alone    ${b.toFixed(1)} ms  ${(flops / b / 1e6).toFixed(1)} GFLOP/s`);
  console.log(`  one by one, summed    ${summed.toFixed(1)} ms  ${(flops / summed / 1e6).toFixed(1)} GFLOP/s`);
  console.log(`  ratio to products     ${ratio.toFixed(2)} (median of ${graphMs.length} pairs)`);
  console.log(`  ratio to the sum      ${(g / summed).toFixed(2)}\n`);
  await whole.dispose();
  await products.dispose();
}

type Product = NodeOrigin<'MatMul' | 'Gemm'>;

const productsOf = (outputs: readonly Value[]): { readonly origin: Product; readonly size: number }[] =>
  topological(outputs).flatMap(({ origin, size }) =>
    origin.kind === 'node' && (origin.op === 'MatMul' || origin.op === 'Gemm')
      ? [{ origin: origin as Product, size }]
      : [],
  );

/** Floating-point operations of the matrix products of a graph: two for each multiplication. */
export function productFlops(outputs: readonly Value[]): number {
  return productsOf(outputs).reduce((sum, { origin, size }) => {
    const transA = 'transA' in origin.attributes && origin.attributes.transA;
    return sum + 2 * size * origin.inputs[0].shape.at(transA ? -2 : -1)!;
  }, 0);
}

/** Adds one product with its own inputs to a graph, and the inputs' values to `feeds`. */
function bareProduct(
  graph: Graph,
  { op, attributes, inputs }: Product,
  feeds: Record<string, TensorData>,
  suffix = '',
): Value {
  const operands = inputs.map(({ shape, size }, i) => {
    const input = graph.input(`${'ab'[i]}${suffix}`, shape);
    feeds[input.name] = new Float32Array(size).fill(0.01);
    return input;
  });
  return apply(op, operands, attributes);
}

/** The median milliseconds of each matrix product in a separate session and run, summed over the graph. */
async function productsOneByOne(outputs: readonly Value[]): Promise<number> {
  const known = new Map<string, number>();
  let sum = 0;
  for (const { origin } of productsOf(outputs)) {
    const key = JSON.stringify([origin.op, origin.attributes, origin.inputs.map(({ shape }) => shape)]);
    let ms = known.get(key);
    if (ms === undefined) {
      const graph = new Graph('product');
      const feeds: Record<string, TensorData> = {};
      const session = await Session.compile(graph, { product: bareProduct(graph, origin, feeds) });
      const into = await session.run(feeds);
      const times: number[] = [];
      for (let round = 0; round < ROUNDS; round++) {
        const start = performance.now();
        await session.run(feeds, new Map(), into);
        times.push(performance.now() - start);
      }
      await session.dispose();
      ms = median(times);
      known.set(key, ms);
    }
    sum += ms;
  }
  return sum;
}

/** One session with all matrix products of a graph, each with its own inputs. */
async function productsAlone(
  outputs: readonly Value[],
): Promise<{ session: Session; feeds: Record<string, TensorData>; flops: number }> {
  const graph = new Graph('products');
  const feeds: Record<string, TensorData> = {};
  const results: Record<string, Value> = {};
  for (const { origin } of productsOf(outputs)) {
    const index = Object.keys(results).length;
    const product = bareProduct(graph, origin, feeds, String(index));
    // Only one element leaves the session, so that copying the result is not timed. The whole product is still computed.
    results[`one${index}`] = slice(reshape(product, [product.size]), 0, 0, 1);
  }
  return { session: await Session.compile(graph, results), feeds, flops: productFlops(outputs) };
}
