import { describe, expect, it } from 'vitest';
import { RandomStream } from '../../../src/core/random.js';
import { Session } from '../../../src/compute/onnx/session.js';
import { gradients } from '../../../src/compute/graph/differentiate.js';
import { Graph } from '../../../src/compute/graph/ir.js';
import type { DecoderConfig } from '../../../src/compute/nets/decoder/config.js';
import { decoderParameters, initDecoder } from '../../../src/compute/nets/decoder/config.js';
import type { BatchShape } from '../../../src/compute/nets/decoder/inputs.js';
import { decodeStep, prefill, sequenceLogits } from '../../../src/compute/nets/decoder/decoder.js';
import { sequenceInputs, stepInputs } from '../../../src/compute/nets/decoder/inputs.js';
import { wholeDistribution } from '../../../src/compute/nets/token_distribution.js';
import { weightedLoss } from '../../../src/compute/nets/losses.js';
import { referenceLogits } from './reference_decoder.js';

const base: DecoderConfig = {
  vocab_size: 23,
  hidden_size: 16,
  intermediate_size: 24,
  num_hidden_layers: 3,
  num_attention_heads: 4,
  num_key_value_heads: 2,
  head_dim: 6,
  rope_theta: 10000,
  rms_norm_eps: 1e-6,
  attention_bias: true,
  tie_word_embeddings: false,
};
const shape: BatchShape = { prompts: 2, answersPerPrompt: 3, promptColumns: 5, answerColumns: 4 };
const lengths = [5, 3];

interface Batch {
  readonly promptIds: BigInt64Array;
  readonly promptPadding: Float32Array;
  readonly answerIds: BigInt64Array;
}

function batch(seed: number): Batch {
  const stream = new RandomStream(seed, 'batch');
  const ids = (count: number): BigInt64Array =>
    BigInt64Array.from({ length: count }, () => BigInt(stream.integer(base.vocab_size)));
  const promptPadding = Float32Array.from({ length: 10 }, (_, i) =>
    i % 5 < 5 - lengths[Math.floor(i / 5)] ? -1e9 : 0,
  );
  return { promptIds: ids(10), promptPadding, answerIds: ids(24) };
}

const configs: [string, DecoderConfig][] = [
  ['grouped queries, bias, untied', base],
  [
    'one head per key, no bias, tied',
    { ...base, num_key_value_heads: 4, attention_bias: false, tie_word_embeddings: true },
  ],
  [
    'the traits of Gemma 3',
    {
      ...base,
      ...{ attention_bias: false, tie_word_embeddings: true, qk_norm: 'head', query_pre_attn_scalar: 9 },
      // Wider than all columns: the layers turn by other angles all the same.
      ...{ sliding_window: 64, sliding_layers: [0, 2], sliding_rope_theta: 100, embedding_scale: 4 },
      ...{ activation: 'gelu_tanh', norm_scale: 'one_plus_weight', block_norms: 'before_and_after' },
    },
  ],
];

describe.each(configs)('decoder: %s', (_name, config) => {
  const weights = initDecoder(config, { embedding_std: 0.5, initializer_range: 0.3 }, 1);
  for (const [name, tensor] of weights) {
    const stream = new RandomStream('perturb', name);
    if (name.endsWith('bias') || name.includes('norm')) {
      tensor.data.forEach((x, i) => (tensor.data[i] = x + 0.2 * stream.normal()));
    }
  }
  const { promptIds, promptPadding, answerIds } = batch(7);

  async function wholeSequenceLogits(): Promise<Float32Array> {
    const graph = new Graph('sequence');
    const session = await Session.compile(graph, {
      logits: sequenceLogits(config, shape, sequenceInputs(graph, shape)),
    });
    const feeds = { prompt_ids: promptIds, prompt_padding: promptPadding, answer_ids: answerIds };
    const out = await session.run(feeds, weights);
    return out.logits as Float32Array;
  }

  it('names its parameters as the checkpoint does', () => {
    const graph = new Graph('sequence');
    sequenceLogits(config, shape, sequenceInputs(graph, shape));
    expect([...graph.parameters.keys()].sort()).toEqual([...decoderParameters(config).keys()].sort());
  });

  // Gemma 3 is compared with transformers in decoder/architectures.test.ts.
  it.runIf(config.block_norms === undefined)('whole sequences agree with a plain computation', async () => {
    const logits = await wholeSequenceLogits();
    for (let p = 0; p < 2; p++) {
      for (let a = 0; a < 3; a++) {
        const prompt = [...promptIds.subarray(p * 5 + 5 - lengths[p], p * 5 + 5)].map(Number);
        const answer = [...answerIds.subarray((p * 3 + a) * 4, (p * 3 + a) * 4 + 4)].map(Number);
        const expected = referenceLogits(config, weights, [...prompt, ...answer], 4).flat();
        const offset = (p * 3 + a) * 4 * config.vocab_size;
        expected.forEach((x, i) => expect(logits[offset + i]).toBeCloseTo(x, 4));
      }
    }
  });

  it('cached decoding agrees with whole sequences to 1e-4', async () => {
    const whole = await wholeSequenceLogits();
    const prefillGraph = new Graph('prefill');
    const inputs = {
      promptIds: prefillGraph.input('prompt_ids', [2, 5], 'int64'),
      promptPadding: prefillGraph.input('prompt_padding', [2, 5]),
    };
    const outputs = Object.fromEntries(
      prefill(config, { prompts: 2, promptColumns: 5 }, inputs).flatMap((cache, i) => [
        [`prompt_keys.${i}`, cache.keysTransposed],
        [`prompt_values.${i}`, cache.values],
      ]),
    );
    const prefilled = await (
      await Session.compile(prefillGraph, outputs)
    ).run({ prompt_ids: promptIds, prompt_padding: promptPadding }, weights);

    const stepGraph = new Graph('step');
    const step = decodeStep(config, shape, stepInputs(stepGraph, config, shape));
    const named = Object.fromEntries(
      step.keys.flatMap((key, i) => [
        [`k.${i}`, key],
        [`v.${i}`, step.values[i]],
      ]),
    );
    const session = await Session.compile(stepGraph, { logits: step.logits, ...named });
    const k = config.num_key_value_heads;
    const [rows, depth, columns] = [2 * 3 * k, config.head_dim, 4];
    const caches: Record<string, Float32Array> = {};
    for (let i = 0; i < config.num_hidden_layers; i++) {
      caches[`answer_keys.${i}`] = new Float32Array(rows * depth * columns);
      caches[`answer_values.${i}`] = new Float32Array(rows * depth * columns);
    }
    for (let t = 0; t < columns; t++) {
      const out = await session.run(
        {
          ...prefilled,
          ...caches,
          ids: BigInt64Array.from({ length: 6 }, (_, e) => answerIds[e * 4 + t]),
          positions: new BigInt64Array(rows).fill(BigInt(5 + t)),
          prompt_padding: promptPadding,
          answer_padding: Float32Array.from({ length: columns }, (_, c) => (c < t ? 0 : -1e9)),
        },
        weights,
      );
      for (let e = 0; e < 6; e++) {
        for (let v = 0; v < config.vocab_size; v++) {
          const expected = whole[(e * 4 + t) * config.vocab_size + v];
          expect(Math.abs((out.logits as Float32Array)[e * config.vocab_size + v] - expected)).toBeLessThan(1e-4);
        }
      }
      for (let i = 0; i < config.num_hidden_layers; i++) {
        for (let row = 0; row < rows; row++) {
          for (let x = 0; x < depth; x++) {
            caches[`answer_keys.${i}`][(row * depth + x) * columns + t] = (out[`k.${i}`] as Float32Array)[
              row * depth + x
            ]!;
            caches[`answer_values.${i}`][(row * columns + t) * depth + x] = (out[`v.${i}`] as Float32Array)[
              row * depth + x
            ]!;
          }
        }
      }
    }
  });

  it('gradients of the training graph agree with finite differences', async () => {
    const graph = new Graph('train');
    const logits = sequenceLogits(config, shape, sequenceInputs(graph, shape));
    const targets = graph.input('targets', [24], 'int64');
    const { logProbs } = wholeDistribution(logits, targets, 0.7, null);
    const loss = weightedLoss(graph.constant(new Float32Array(24).fill(1 / 24), [24]), logProbs, null);
    const names = [...graph.parameters.keys()];
    const found = gradients(loss, [...graph.parameters.values()]);
    const session = await Session.compile(graph, {
      loss,
      ...Object.fromEntries(names.map((name, i) => [`d:${name}`, found[i]])),
    });
    const feeds = {
      prompt_ids: promptIds,
      prompt_padding: promptPadding,
      answer_ids: answerIds,
      targets: batch(8).answerIds,
    };
    const analytic = await session.run(feeds, weights);
    for (const [name, tensor] of weights) {
      // the derivative along a random direction, by central differences
      const stream = new RandomStream('direction', name);
      const direction = Float32Array.from(tensor.data, () => stream.normal());
      const original = Float32Array.from(tensor.data);
      const at = async (step: number): Promise<number> => {
        original.forEach((x, i) => (tensor.data[i] = x + step * direction[i]));
        const out = await session.run(feeds, weights);
        tensor.data.set(original);
        return (out.loss as Float32Array)[0];
      };
      const h = 2e-3;
      const numeric = ((await at(h)) - (await at(-h))) / (2 * h);
      const exact = direction.reduce((sum, x, i) => sum + x * (analytic[`d:${name}`] as Float32Array)[i], 0);
      expect(Math.abs(numeric - exact), name).toBeLessThan(2e-3 + 0.02 * Math.abs(exact));
    }
  });
});
