/**
 * Where the time of a GRPO iteration goes, at the tiny size, and how much slower the training graph is than its own matrix products
 * alone: the same products on operands of the same shapes, all in a second session of the same process, in turns with the graph; and
 * each of them as a run of its own, summed, which pays for starting a run every time.
 */
import { availableParallelism, cpus } from 'node:os';
import { Session, type TensorData } from '../../src/engines/onnx/session.js';
import { apply, slice, reshape } from '../../src/graph/build.js';
import { Graph, topological, type NodeOrigin, type Value } from '../../src/graph/ir.js';
import { initDecoder, type DecoderConfig } from '../../src/nets/decoder/config.js';
import type { BatchShape } from '../../src/nets/decoder/decoder.js';
import { alone } from '../../src/group/peers.js';
import { Emu3Format } from '../../src/policies/tokens/emu3/format.js';
import { jointVocabularyJson, TokenSpace } from '../../src/policies/tokens/emu3/space.js';
import { Learner } from '../../src/policies/tokens/learner.js';
import { WordTokenizer } from '../../src/models/tokenizer/words.js';
import type { LossSpec } from '../../src/policies/policy.js';
import { median, shortRun } from './short_run.js';

const GRPO: LossSpec = { policy: 'reinforce', kl: { coefficient: 3e-4, estimator: 'k3' } };
const ITERATIONS = 12;
/** The first iterations compile sessions. */
const WARM_UP = 2;
const ROUNDS = 15;

const shared = { rope_theta: 10_000, rms_norm_eps: 1e-5, attention_bias: false, tie_word_embeddings: false };
const sizes: Readonly<
  Record<string, { readonly layout: Omit<DecoderConfig, 'vocab_size'>; readonly shape: BatchShape }>
> = {
  'tiny (3 layers of 96), 64 answers': {
    layout: {
      ...shared,
      hidden_size: 96,
      intermediate_size: 256,
      num_hidden_layers: 3,
      num_attention_heads: 4,
      num_key_value_heads: 4,
      head_dim: 24,
    },
    shape: { prompts: 8, answersPerPrompt: 8, promptColumns: 40, answerColumns: 28 },
  },
  '8 layers of 512, 16 answers': {
    layout: {
      ...shared,
      hidden_size: 512,
      intermediate_size: 1408,
      num_hidden_layers: 8,
      num_attention_heads: 8,
      num_key_value_heads: 8,
      head_dim: 64,
    },
    shape: { prompts: 2, answersPerPrompt: 8, promptColumns: 96, answerColumns: 64 },
  },
};

export async function benchIteration(): Promise<void> {
  console.log(
    `${cpus()[0]?.model ?? 'unknown processor'}, ${availableParallelism()} threads, node ${process.version}\n`,
  );
  for (const [name, { layout, shape }] of Object.entries(sizes)) await benchGraph(name, layout, shape);
  await benchLoop();
}

/** The split of real iterations of 128 episodes, from the start that `npm run quickstart` leaves behind. */
async function benchLoop(): Promise<void> {
  const lines = await shortRun(
    'bench_iteration',
    [`num_iterations=${ITERATIONS}`, 'rollout.episodes_per_iteration=128', 'rollout.chunk_groups=8'],
    WARM_UP,
  );
  const typical = (name: string): number => median(lines.map((metrics) => metrics[name] ?? 0));
  const parts = ['total', 'rollout', 'render', 'judge', 'reference', 'update', 'other', 'onnxruntime'];
  console.log(`a GRPO iteration of 128 episodes, medians of ${lines.length}:`);
  for (const part of parts) console.log(`  ${part.padEnd(12)} ${typical(`time/${part}`).toFixed(3)} s`);
  const outside = median(
    lines.map((m) => (m['time/total'] ?? 0) - (m['time/onnxruntime'] ?? 0) - (m['time/judge'] ?? 0)),
  );
  console.log(`  outside onnxruntime and the wait for the judge: ${outside.toFixed(3)} s`);
  console.log(`  ${Math.round(typical('tokens/s'))} answer tokens/s`);
}

async function benchGraph(name: string, layout: Omit<DecoderConfig, 'vocab_size'>, shape: BatchShape): Promise<void> {
  const words = Array.from({ length: 48 }, (_, i) => `w${i}`);
  const tokenizer = new WordTokenizer(jointVocabularyJson(words, 64), 'bench');
  const format = new Emu3Format(
    new TokenSpace(tokenizer, { chatWords: true, imageHeader: 'forced', endAfterImage: false }),
  );
  const config: DecoderConfig = { ...layout, vocab_size: format.size };
  const weights = initDecoder(config, { embedding_std: 0.5, initializer_range: null }, 1);
  const learner = new Learner(
    { config, format, weights },
    {
      temperature: 1,
      separateVocabularies: true,
      microBatch: 64,
      gradientCheckpointing: false,
      session: {},
      peers: alone,
    },
  );
  const graph = new Graph('bench');
  const outputs = learner.lossGraph(graph, shape, GRPO);
  const whole = await Session.compile(graph, outputs);
  const feeds: Record<string, TensorData> = {};
  for (const [input, type] of whole.inputs) {
    const size = type.shape.reduce((n, x) => n * x, 1);
    feeds[input] =
      type.dtype === 'int64'
        ? BigInt64Array.from({ length: size }, (_, i) => BigInt((i * 7) % format.size))
        : new Float32Array(size);
  }
  const { session: products, feeds: operands, flops } = await productsAlone(Object.values(outputs));
  const graphMs: number[] = [];
  const bareMs: number[] = [];
  // The learner has each gradient written where the one before is.
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

/** Adds one product on inputs of its own, and what feeds them. */
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

/** Milliseconds of every matrix product as a session and a run of its own, its median, summed over the graph. */
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

/** All matrix products of a graph, each on inputs of its own, as one session. */
async function productsAlone(
  outputs: readonly Value[],
): Promise<{ session: Session; feeds: Record<string, TensorData>; flops: number }> {
  const graph = new Graph('products');
  const feeds: Record<string, TensorData> = {};
  const results: Record<string, Value> = {};
  let flops = 0;
  for (const { origin, size } of productsOf(outputs)) {
    const index = Object.keys(results).length;
    const product = bareProduct(graph, origin, feeds, String(index));
    // One element leaves the session, so that copying results out is not timed; the product itself is computed whole.
    results[`one${index}`] = slice(reshape(product, [product.size]), 0, 0, 1);
    const transA = 'transA' in origin.attributes && origin.attributes.transA;
    flops += 2 * size * origin.inputs[0].shape.at(transA ? -2 : -1)!;
  }
  return { session: await Session.compile(graph, results), feeds, flops };
}
