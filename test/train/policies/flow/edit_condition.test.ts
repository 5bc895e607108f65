import { describe, expect, it } from 'vitest';
import { editCondition, sourceInputOf } from '../../../../src/train/policies/flow/editor.js';
import { pixelCodec } from '../../../../src/train/environments/image_codec.js';
import { microBatches, modelFeeds } from '../../../../src/train/policies/flow/rows.js';
import { pack } from '../../../../src/train/policies/flow/batch.js';
import type { Planes } from '../../../../src/core/images/planes.js';
import type { QwenImageConfig } from '../../../../src/compute/nets/flow/config.js';
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

const qwen: QwenImageConfig = {
  architecture: 'qwen_image',
  in_channels: 12,
  out_channels: 3,
  patch_size: 2,
  zero_cond_t: false,
  num_layers: 1,
  attention_head_dim: 8,
  num_attention_heads: 1,
  joint_attention_dim: 2,
  axes_dims_rope: [4, 2, 2],
  ip_adapter: null,
  prediction: 'velocity',
  condition_dropout: null,
};

describe('images beside the one to edit', () => {
  const tall = { channels: 3, width: 2, height: 6, data: Float32Array.from({ length: 36 }, (_, i) => 100 + i) };
  const form = sourceInputOf(qwen, pixelCodec, 'here');
  const row = (...further: Planes[]) => ({
    condition: editCondition(told(3), [source, ...further], form, qwen),
    sigma: 1,
    x: new Float32Array(24),
  });

  it('follow it as tokens, each of its own size, in micro-batches of their own', () => {
    expect(form.several).toBe(true);
    const rows = [row(tall), row(), row(tall, source)];
    const batches = microBatches(rows, qwen, 1);
    expect(batches.map(({ shape, at }) => [shape.further, at])).toEqual([
      [[{ rows: 3, columns: 1 }], [0]],
      [undefined, [1]],
      [
        [
          { rows: 3, columns: 1 },
          { rows: 1, columns: 2 },
        ],
        [2],
      ],
    ]);
    const [several, alone] = batches.map(({ shape, at }) => modelFeeds([rows[at[0]]], qwen, shape, null)['second']);
    expect(alone).toHaveLength(24);
    expect(several).toEqual(Float32Array.from([...(alone as Float32Array), ...pack(tall, 2)]));
    expect(several).toHaveLength(60);
  });

  it('are for models that have positions for them', () => {
    expect(sourceInput.several).toBe(false);
    expect(sourceInputOf({ ...besides, in_channels: 12 }, pixelCodec, 'here').several).toBe(false);
    expect(sourceInputOf({ ...qwen, in_channels: 24 }, pixelCodec, 'here').several).toBe(false);
    expect(() => editCondition(told(3), [source, tall], sourceInput, besides)).toThrow('2 images for a model of one');
  });
});
