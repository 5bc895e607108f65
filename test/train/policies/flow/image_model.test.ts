import { describe, expect, it } from 'vitest';
import { CheckpointError } from '../../../../src/core/errors.js';
import { pixelCodec } from '../../../../src/train/environments/image_codec.js';
import { WordEncoder } from '../../../../src/train/environments/word_encoder.js';
import type { FluxConfig } from '../../../../src/compute/nets/flow/config.js';
import { initFlowTransformer } from '../../../../src/compute/nets/flow/transformer.js';
import { FlowImageModel, requireFit } from '../../../../src/train/policies/flow/image_model.js';
import { flowModelTypes } from '../../../../src/train/policies/flow/model_types.js';

const encoder = new WordEncoder({ words: ['red', 'blue'], length: 3 });
const config: FluxConfig = {
  architecture: 'flux',
  in_channels: 48,
  out_channels: 48,
  num_layers: 1,
  num_single_layers: 0,
  attention_head_dim: 8,
  num_attention_heads: 2,
  joint_attention_dim: encoder.width,
  pooled_projection_dim: 0,
  guidance_embeds: false,
  prediction: 'velocity',
  condition_dropout: null,
  axes_dims_rope: [4, 2, 2],
  ip_adapter: null,
};
const weights = initFlowTransformer(config, 1);
// Layers that begin as zeros leave every prompt the same image.
for (const [name, { data }] of weights) {
  if (data.every((one) => one === 0) && name.endsWith('.weight')) {
    data.forEach((_, i) => (data[i] = Math.sin(i + name.length) / 4));
  }
}
const making = {
  width: 8,
  height: 8,
  batch: 2,
  guidance: null,
  sigmas: () => flowModelTypes.tiny.sigmas(3),
};
const open = (batch = 2) =>
  new FlowImageModel({
    model: { config, weights },
    codec: pixelCodec,
    encoder,
    making: { ...making, batch },
    session: { threads: 1 },
  });

async function images(model: FlowImageModel, ...asked: (readonly [string, number])[]): Promise<Uint8Array[]> {
  const made = await model.generate(asked.map(([prompt, seed], i) => ({ key: String(i), prompt, seed })));
  return made.map((one) => {
    if (one.kind !== 'made') throw new Error('no image');
    expect([one.image.width, one.image.height]).toEqual([8, 8]);
    return one.image.data;
  });
}

describe('a frozen flow model as the maker of images', () => {
  it('makes the same image of the same prompt and seed, whatever is asked in addition to', async () => {
    const model = open();
    const before = [...weights].map(([name, { data }]) => [name, data.slice()] as const);
    const [first, other, again, noise, none] = await images(
      model,
      ['red', 1],
      ['blue', 1],
      ['red', 1],
      ['red', 2],
      ['', 1],
    );
    expect(again).toEqual(first);
    expect(other).not.toEqual(first);
    expect(noise).not.toEqual(first);
    expect(none).not.toEqual(first);
    expect(await images(model, ['blue', 1], ['red', 1])).toEqual([other, first]);
    for (const [name, data] of before) expect(weights.get(name)?.data).toEqual(data);
    await model.close();
  });

  it.each([
    [{ config: { ...config, in_channels: 60 } }, 'it paints into images'],
    [{ config: { ...config, joint_attention_dim: 9 } }, 'the model reads texts of width 9'],
    [{ config: { ...config, ip_adapter: { tokens: 1, image_embed_dim: 2, scale: 1 } } }, 'a style image'],
    [{ config: { ...config, in_channels: 30, out_channels: 30 } }, 'latents have 3 channels'],
  ])('rejects a model that does not fit: %#', (model, message) => {
    expect(() => requireFit({ model, codec: pixelCodec, encoder, making })).toThrow(CheckpointError);
    expect(() => requireFit({ model, codec: pixelCodec, encoder, making })).toThrow(message);
  });
});
