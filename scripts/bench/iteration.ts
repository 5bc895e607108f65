/** How the time of a GRPO iteration is spent at the tiny size, and how much slower the training graph is than its matrix products alone. */
import { availableParallelism, cpus } from 'node:os';
import { Graph } from '../../src/compute/graph/ir.js';
import { initDecoder, type DecoderConfig } from '../../src/compute/nets/decoder/config.js';
import type { BatchShape } from '../../src/compute/nets/decoder/inputs.js';
import { soloPeers } from '../../src/core/group/peers.js';
import { Emu3Format, jointVocabularyJson, TokenSpace } from '../../src/train/policies/tokens/emu3.js';
import { Learner } from '../../src/train/policies/tokens/learner.js';
import { WordTokenizer } from '../../src/models/tokenizer/words.js';
import type { LossSpec } from '../../src/train/policies/losses/table.js';
import { besideProducts } from './products.js';
import { median, shortRun } from './short_run.js';

const GRPO: LossSpec = { policy: 'reinforce', kl: { coefficient: 3e-4 } };
const ITERATIONS = 12;
/** The first iterations compile sessions. */
const WARM_UP = 2;

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

/** The time by part of real iterations with 128 episodes, from the start that `npm run quickstart` trained. */
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
      peers: soloPeers,
    },
  );
  const graph = new Graph('bench');
  const outputs = learner.lossGraph(graph, shape, GRPO);
  await besideProducts(name, graph, outputs, weights, (type, size) =>
    type.dtype === 'int64'
      ? BigInt64Array.from({ length: size }, (_, i) => BigInt((i * 7) % format.size))
      : new Float32Array(size),
  );
}
