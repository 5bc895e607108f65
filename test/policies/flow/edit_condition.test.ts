import { describe, expect, it } from 'vitest';
import { editCondition, sourceInputOf, textColumns } from '../../../src/policies/flow/edit_condition.js';
import { pixelCodec } from '../../../src/environments/picture_codec.js';
import { microBatches, modelFeeds } from '../../../src/policies/flow/rows.js';
import { config } from './small_flow.js';

const besides = {
  ...config,
  in_channels: 24,
  out_channels: 12,
  joint_attention_dim: 2,
  ip_adapter: null,
};
const sourceInput = sourceInputOf(besides, pixelCodec, 'here');
const source = { channels: 3, width: 4, height: 2, data: Float32Array.from({ length: 24 }, (_, i) => i) };
const told = (tokens: number) => ({
  width: 2,
  states: Float32Array.from({ length: 2 * tokens }, (_, i) => i + 1),
  ids: new Int32Array(tokens),
});

describe('what a model that edits is conditioned on', () => {
  it('is padded by its own length alone', () => {
    expect([1, 16, 17, 48, 200, 257, 1000].map(textColumns)).toEqual([16, 16, 32, 48, 208, 288, 1024]);
  });

  it('are hidden states with padding that is said to be none, and the picture', () => {
    const condition = editCondition(told(3), source, sourceInput, besides);
    expect(condition).toMatchObject({ rows: 1, columns: 2, textTokens: 3, pooled: null });
    expect([...condition.text.subarray(0, 6)]).toEqual([1, 2, 3, 4, 5, 6]);
    expect(condition.text).toHaveLength(32);
    expect([...condition.context.subarray(0, 12)]).toEqual([0, 1, 4, 5, 8, 9, 12, 13, 16, 17, 20, 21]);
    const rows = [condition, editCondition(told(16), source, sourceInput, besides)].map((one) => ({
      condition: one,
      sigma: 1,
      x: new Float32Array(24),
    }));
    const [{ shape, at }] = microBatches(rows, besides, 2);
    expect([shape.textTokens, shape.hasPadding, at]).toEqual([16, true, [0, 1]]);
    const padding = [...(modelFeeds(rows, besides, shape, null)['text_padding'] as Float32Array)];
    expect(padding.map((x) => x < -1e6)).toEqual(
      [...Array(16).keys()].map((t) => t >= 3).concat(Array(16).fill(false)),
    );
  });
});
