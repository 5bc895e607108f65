import { describe, expect, it } from 'vitest';
import { Session } from '../../../../src/compute/onnx/session.js';
import { Graph, topological } from '../../../../src/compute/graph/ir.js';
import { causalMask, promptWindowMask } from '../../../../src/compute/nets/decoder/attention.js';
import { sequenceLogits } from '../../../../src/compute/nets/decoder/decoder.js';
import { sequenceInputs } from '../../../../src/compute/nets/decoder/inputs.js';

const config = {
  vocab_size: 11,
  hidden_size: 8,
  intermediate_size: 8,
  num_hidden_layers: 1,
  num_attention_heads: 2,
  num_key_value_heads: 1,
  head_dim: 4,
  rope_theta: 10_000,
  rms_norm_eps: 1e-6,
  attention_bias: false,
  tie_word_embeddings: false,
  sliding_window: 5,
};

/** Element count of the largest constant in a graph over prompts and answers of this many columns each. */
function largestConstant(columns: number): number {
  const shape = { prompts: 1, answersPerPrompt: 2, promptColumns: columns, answerColumns: columns };
  const graph = new Graph('sequence');
  const logits = sequenceLogits(config, shape, sequenceInputs(graph, shape));
  return Math.max(...topological([logits]).map(({ origin, size }) => (origin.kind === 'constant' ? size : 0)));
}

describe('masks', () => {
  it('grow with a context, and not with its square', () => {
    expect(largestConstant(256)).toBeLessThanOrEqual(4 * largestConstant(64));
  });

  it('hide what is later, and what is before a window', async () => {
    const [promptColumns, answerColumns, rows, window] = [7, 4, 12, 5];
    const graph = new Graph('masks');
    const session = await Session.compile(graph, {
      causal: causalMask(graph, 2, answerColumns, 3),
      prompt: promptWindowMask(graph, rows, { promptColumns, answerColumns }, window),
    });
    const { causal, prompt } = await session.run({});
    await session.dispose();
    const seen = (mask: unknown): boolean[] => Array.from(mask as Float32Array, (x) => x === 0);
    const table = (count: number, width: number, sees: (query: number, key: number) => boolean): boolean[] =>
      Array.from({ length: count * width }, (_, i) => sees(Math.floor(i / width) % answerColumns, i % width));
    expect(seen(causal)).toEqual(
      table(2 * answerColumns, answerColumns, (query, key) => key <= query && key > query - 3),
    );
    expect(seen(prompt)).toEqual(table(rows, promptColumns, (query, key) => key > promptColumns + query - window));
  });
});
