import { describe, expect, it } from 'vitest';
import { CheckpointError } from '../../../../src/core/errors.js';
import { readEmbedder, readImageEncoder } from '../../../../src/compute/nets/clip/config.js';

const read = (json: object): ReturnType<typeof readEmbedder> =>
  readEmbedder(json as Record<string, unknown>, 'config.json');
const clip = (more: object = {}): ReturnType<typeof readEmbedder> => read({ model_type: 'clip', ...more });
const siglip = (more: object = {}): ReturnType<typeof readEmbedder> => read({ model_type: 'siglip', ...more });

describe('the config of a model that compares texts with images', () => {
  it("has the defaults of transformers' CLIPConfig", () => {
    const layers = { num_hidden_layers: 12, hidden_act: 'quick_gelu', layer_norm_eps: 1e-5 };
    const plain = {
      family: 'clip',
      projection_dim: 512,
      text: {
        ...layers,
        hidden_size: 512,
        intermediate_size: 2048,
        num_attention_heads: 8,
        vocab_size: 49_408,
        max_position_embeddings: 77,
        bos_token_id: 49_406,
        eos_token_id: 49_407,
      },
      vision: {
        ...layers,
        hidden_size: 768,
        intermediate_size: 3072,
        num_attention_heads: 12,
        num_channels: 3,
        image_size: 224,
        patch_size: 32,
      },
    };
    expect(clip()).toEqual(plain);
    expect(clip({ text_config: null, vision_config: { layer_norm_eps: null }, text_config_dict: null })).toEqual(plain);
  });

  it("has the defaults of transformers' SiglipConfig", () => {
    const layers = {
      hidden_size: 768,
      intermediate_size: 3072,
      num_hidden_layers: 12,
      num_attention_heads: 12,
      hidden_act: 'gelu_pytorch_tanh',
      layer_norm_eps: 1e-6,
    };
    const plain = {
      family: 'siglip',
      text: { ...layers, vocab_size: 32_000, max_position_embeddings: 64, projection_size: 768 },
      vision: { ...layers, num_channels: 3, image_size: 224, patch_size: 16, vision_use_head: true },
    };
    expect(siglip()).toEqual(plain);
    expect(siglip({ text_config: null, vision_config: null })).toEqual(plain);
  });

  it('of so400m has heads of 72 and an odd inner width', () => {
    const so400m = { hidden_size: 1152, intermediate_size: 4304, num_attention_heads: 16, num_hidden_layers: 27 };
    const { vision, text } = siglip({
      text_config: so400m,
      vision_config: { ...so400m, image_size: 384, patch_size: 14 },
    });
    expect([vision, text]).toMatchObject([so400m, { ...so400m, projection_size: 1152 }]);
  });

  it('says by its older section what counts, with every default', () => {
    // As openai/clip-vit-large-patch14 does; its end is that of the defaults then.
    const text_config = {
      hidden_size: 768,
      num_attention_heads: 12,
      hidden_act: 'gelu',
      eos_token_id: 2,
      layer_norm_eps: 0.5,
    };
    const found = clip({ text_config, text_config_dict: { hidden_size: 768, num_attention_heads: 12 } });
    expect(found.text).toMatchObject({
      hidden_size: 768,
      hidden_act: 'quick_gelu',
      eos_token_id: 49_407,
      layer_norm_eps: 1e-5,
    });
    expect(clip({ text_config }).text).toMatchObject({ hidden_act: 'gelu', eos_token_id: 2, layer_norm_eps: 0.5 });
    expect(clip({ vision_config: { patch_size: 14 }, vision_config_dict: {} }).vision.patch_size).toBe(32);
    // SigLIP has no such files.
    expect(siglip({ text_config_dict: { hidden_size: 99 } })).toEqual(siglip());
  });

  it.each([
    [
      { model_type: 'siglip2' },
      /model_type "siglip2" is not supported; allowed: clip, siglip$/,
      /NaFlex.*siglip2-base-patch16-224/,
    ],
    [{ model_type: 'blip' }, /model_type "blip" is not supported; allowed: clip, siglip$/, /a CLIP or a SigLIP/],
    [{}, /model_type undefined/, /a CLIP or a SigLIP/],
    [
      { model_type: 'clip', text_config: { hidden_act: 'gelu_new' } },
      /^text_config\.hidden_act: found "gelu_new"; allowed: quick_gelu, gelu, gelu_pytorch_tanh$/,
      undefined,
    ],
    [{ model_type: 'clip', text_config_dict: { hidden_act: 1 } }, /^text_config_dict\.hidden_act: found 1/, undefined],
    [
      { model_type: 'clip', text_config: { eos_token_id: [1, 2] } },
      /^text_config\.eos_token_id: must be a single id/,
      undefined,
    ],
    [{ model_type: 'clip', vision_config: { num_channels: 4 } }, /^vision_config\.num_channels: only 3/, undefined],
    [{ model_type: 'clip', vision_config: { image_size: [224, 224] } }, /^vision_config\.image_size: /, undefined],
    [
      { model_type: 'siglip', vision_config: { num_attention_heads: 7 } },
      /^vision_config: hidden_size 768 is not a multiple of its 7 heads$/,
      undefined,
    ],
    [
      { model_type: 'siglip', vision_config: { image_size: 8 } },
      /^patch_size 16 is larger than the image size 8/,
      undefined,
    ],
  ])('rejects %j', (json, message, next) => {
    expect(() => read(json)).toThrow(CheckpointError);
    expect(() => read(json)).toThrow(message);
    if (next !== undefined) {
      expect(() => read(json)).toThrow(expect.objectContaining({ next: expect.stringMatching(next) as string }));
    }
  });

  it('may be of a vision half alone, if only that is read', () => {
    const tower = (json: object): unknown => readImageEncoder(json as Record<string, unknown>, 'config.json');
    const found = { hidden_size: 12, num_attention_heads: 3, patch_size: 4 };
    expect(tower({ model_type: 'clip_vision_model', projection_dim: 5, ...found })).toMatchObject({
      family: 'clip',
      projection_dim: 5,
      vision: { ...found, hidden_act: 'quick_gelu' },
    });
    expect(tower({ model_type: 'siglip_vision_model', ...found })).toMatchObject({ family: 'siglip', vision: found });
    expect(tower({ model_type: 'siglip' })).toEqual(siglip());
    expect(() => tower({ model_type: 'dinov2' })).toThrow(
      'allowed: clip, siglip, clip_vision_model, siglip_vision_model',
    );
    expect(() => read({ model_type: 'siglip_vision_model' })).toThrow('allowed: clip, siglip');
  });
});
