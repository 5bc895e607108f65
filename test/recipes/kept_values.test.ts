/** The values that estimates count for the backward pass, beside those that training graphs keep. */
import { describe, expect, it } from 'vitest';
import { Graph, topological, type Value } from '../../src/compute/graph/ir.js';
import { recomputed, type BlockWrapper } from '../../src/compute/nets/layers.js';
import { withAdapter, type DecoderConfig } from '../../src/compute/nets/decoder/config.js';
import { sequenceHead } from '../../src/compute/nets/decoder/decoder.js';
import { sequenceInputs } from '../../src/compute/nets/decoder/inputs.js';
import { isAdapters } from '../../src/compute/nets/lora.js';
import { tokenDistribution } from '../../src/compute/nets/token_distribution.js';
import { sumAll } from '../../src/compute/graph/build.js';
import { trainingOutputs } from '../../src/train/policies/backward.js';
import { decoderActivations } from '../../src/recipes/shared/memory.js';

const config = {
  vocab_size: 50,
  hidden_size: 32,
  intermediate_size: 88,
  num_hidden_layers: 2,
  num_attention_heads: 4,
  num_key_value_heads: 4,
  head_dim: 8,
  tie_word_embeddings: false,
  rope_theta: 10_000,
  rms_norm_eps: 1e-6,
  attention_bias: false,
} as const satisfies DecoderConfig;
const batch = { prompts: 2, answersPerPrompt: 3, promptTokens: 12, answerTokens: 5 };
const rows = 2 * (12 + 3 * 5);
const RANK = 2;

/** float32 values of the forward pass that the backward pass reads; a reshaped one is the one that it was made of. */
function keptBy(config: DecoderConfig, isTrained: (parameter: string) => boolean, wrap?: BlockWrapper): number {
  const graph = new Graph('kept');
  const { prompts, answersPerPrompt, promptTokens: promptColumns, answerTokens: answerColumns } = batch;
  const shape = { prompts, answersPerPrompt, promptColumns, answerColumns };
  const logits = sequenceHead(config, shape, sequenceInputs(graph, shape), wrap);
  const targets = graph.input('targets', [logits[0].rows.shape[0]], 'int64');
  const { logProbs } = tokenDistribution(logits, targets, { temperature: 1, secondPart: null, learning: true });
  const outputs = trainingOutputs(sumAll(logProbs), {}, isTrained);
  const made = (value: Value): Value => {
    const { origin } = value;
    return origin.kind === 'node' && origin.op === 'Reshape' ? made(origin.inputs[0]) : value;
  };
  const kept = new Set<Value>();
  for (const { id, origin } of topological(Object.values(outputs))) {
    if (origin.kind !== 'node' || id <= outputs['loss'].id) continue;
    for (const input of origin.inputs) {
      const source = made(input);
      if (source.id <= outputs['loss'].id && source.origin.kind === 'node' && source.dtype === 'float32') {
        kept.add(source);
      }
    }
  }
  return [...kept].reduce((sum, { size }) => sum + size, 0);
}

/** What one more layer keeps. */
function perLayer(isTrained: (parameter: string) => boolean, lora = false, wrap?: BlockWrapper): number {
  const [fewer, more] = [2, 3].map((num_hidden_layers) => {
    const sized = { ...config, num_hidden_layers };
    const adapter = { rank: RANK, alpha: 4, rslora: false, targets: 'all-linear' };
    return keptBy(lora ? withAdapter(sized, adapter) : sized, isTrained, wrap);
  });
  return more - fewer;
}

/** The same by the estimate. */
function estimated(isTrained: boolean, gradientCheckpointing = false): number {
  const [fewer, more] = [2, 3].map((num_hidden_layers) =>
    decoderActivations({ ...config, num_hidden_layers }, { ...batch, gradientCheckpointing }, isTrained),
  );
  return more - fewer;
}

const all = (): boolean => true;
/** Gradients pass through each layer to what is before it. */
const onlyBefore = (name: string): boolean => name === 'model.embed_tokens.weight';

describe('the values that a layer keeps', () => {
  it('are fewer by the inputs of its products if only what is before it trains, in the graph as by the estimate', () => {
    const { hidden_size: d, intermediate_size: f } = config;
    const less = perLayer(all) - perLayer(onlyBefore);
    expect(less).toBe(rows * (3 * d + f));
    expect(estimated(true) - estimated(false)).toBe(less);
  });

  it('are as many for an adapter as for its matrices, but for its own narrow rows', () => {
    expect(perLayer(isAdapters, true) - perLayer(all)).toBe(rows * 7 * RANK);
  });

  it('are no more than the estimate has, which has what is live beside them', () => {
    for (const [isTrained, names] of [
      [true, all],
      [false, onlyBefore],
    ] as const) {
      expect(perLayer(names)).toBeLessThan(estimated(isTrained));
      expect(perLayer(names)).toBeGreaterThan(0.6 * estimated(isTrained));
    }
  });

  it('are its input alone where it is computed again, whatever trains', () => {
    for (const names of [all, onlyBefore]) {
      expect(perLayer(names, false, recomputed)).toBe(rows * config.hidden_size);
    }
    expect(estimated(true, true)).toBe(rows * config.hidden_size);
    expect(estimated(false, true)).toBe(rows * config.hidden_size);
  });
});
