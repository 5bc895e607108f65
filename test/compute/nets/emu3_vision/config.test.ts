import { describe, expect, it } from 'vitest';
import { CheckpointError } from '../../../../src/core/errors.js';
import { patchOf, readEmu3Vision } from '../../../../src/compute/nets/emu3_vision/config.js';

const published = { model_type: 'Emu3VisionVQ' };
const converted = { model_type: 'emu3_vqgan' };
const usual = {
  codebook_size: 32_768,
  embed_dim: 4,
  ch: 256,
  ch_mult: [1, 2, 2, 4],
  num_res_blocks: 2,
  attn_resolutions: [3],
  attention_heads: 1,
  temporal_downsample_factor: 4,
};

describe('the config', () => {
  it('has the sizes of the published weights if it does not say others', () => {
    expect(readEmu3Vision(published, 'here')).toEqual({ layout: 'published', ...usual });
    expect(readEmu3Vision(converted, 'here')).toEqual({ layout: 'transformers', ...usual });
    expect(readEmu3Vision({ model_type: 'emu3', vq_config: {}, text_config: { hidden_size: 7 } }, 'here')).toEqual({
      layout: 'transformers',
      ...usual,
    });
    expect(patchOf(readEmu3Vision(published, 'here'))).toBe(8);
  });

  it("reads BAAI's names and transformers' alike", () => {
    const own = { ch: 32, ch_mult: [2, 1, 1], z_channels: 6, embed_dim: 6, codebook_size: 9, attn_resolutions: [0, 2] };
    const same = {
      base_channels: 32,
      channel_multiplier: [2, 1, 1],
      latent_channels: 6,
      embed_dim: 6,
      codebook_size: 9,
    };
    const sizes = { ...usual, ch: 32, ch_mult: [2, 1, 1], embed_dim: 6, codebook_size: 9 };
    const mine = readEmu3Vision({ ...published, ...own, dropout: 0.1, num_res_blocks: 3 }, 'here');
    expect(mine).toEqual({ ...sizes, layout: 'published', attn_resolutions: [0, 2], num_res_blocks: 3 });
    const theirs = readEmu3Vision(
      {
        ...converted,
        ...same,
        hidden_size: 32,
        num_attention_heads: 4,
        attn_resolutions: [],
        temporal_downsample_factor: 1,
      },
      'here',
    );
    const attention = { attention_heads: 4, attn_resolutions: [], temporal_downsample_factor: 1 };
    expect(theirs).toEqual({ ...sizes, layout: 'transformers', ...attention });
    expect(patchOf(mine)).toBe(4);
  });

  it('passes over what any config may hold and no result depends on', () => {
    const more = { architectures: ['X'], auto_map: {}, torch_dtype: 'float32', id2label: {}, _name_or_path: 'x' };
    expect(readEmu3Vision({ ...published, ...more }, 'here')).toEqual({ layout: 'published', ...usual });
  });

  it.each<[object, string]>([
    [{ ...published, ch_multt: [1] }, 'Unrecognized key: "ch_multt"'],
    [{ ...published, base_channels: 32 }, 'Unrecognized key: "base_channels"'],
    [{ ...converted, ch: 32 }, 'Unrecognized key: "ch"'],
    [{ ...published, double_z: true }, 'double_z: only false is supported'],
    [{ ...converted, double_latent: true }, 'double_latent: only false is supported'],
    [{ ...published, in_channels: 1 }, 'in_channels: only 3 is supported: red, green and blue'],
    [{ ...published, out_channels: 4 }, 'out_channels: only 3 is supported: red, green and blue'],
    [{ ...published, temporal_downsample_factor: 3 }, 'temporal_downsample_factor: only powers of 2'],
    [{ ...published, attn_resolutions: null }, 'attn_resolutions: '],
    [{ ...published, z_channels: 8 }, 'codes have 4 channels and latents 8; the numbers must be equal'],
    [{ ...published, ch: 40, ch_mult: [4, 1] }, 'a level has 40 channels, which is not a multiple of the 32 groups'],
    [{ ...converted, hidden_size: 512 }, 'hidden_size is 512, but attention has 1024 channels'],
    [{ ...converted, attn_resolutions: [1] }, 'hidden_size is 1024, but attention has 512 channels'],
    [{ ...converted, num_attention_heads: 3 }, 'hidden_size 1024 is not a multiple of its 3 heads'],
    [{ model_type: 'emu3' }, 'vq_config: '],
  ])('rejects %j', (json, message) => {
    const read = (): unknown => readEmu3Vision(json as Record<string, unknown>, 'here');
    expect(read).toThrow(CheckpointError);
    expect(read).toThrow(message);
  });
});
