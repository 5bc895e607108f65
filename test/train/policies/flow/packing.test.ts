import { describe, expect, it } from 'vitest';
import type { Planes } from '../../../../src/core/images/planes.js';
import { concatChannels, pack, unpack, unshuffle } from '../../../../src/train/policies/flow/batch.js';

const numbered = (channels: number, height: number, width: number): Planes => ({
  channels,
  height,
  width,
  data: Float32Array.from({ length: channels * height * width }, (_, i) => i),
});

describe('pack', () => {
  it('orders features by channel, row and column of a square', () => {
    // Two channels of 2 x 4: the first token is the left square of both.
    expect([...pack(numbered(2, 2, 4), 2)]).toEqual([0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15]);
  });

  it('is undone by unpack', () => {
    const planes = numbered(3, 8, 12);
    expect(unpack(pack(planes, 4), planes, 4)).toEqual(planes);
  });

  it('gives the shapes of FLUX at 512 pixels', () => {
    // 16 x 64 x 64 latents become 1024 tokens of 64; a mask of 512 x 512, unshuffled by 8, 1024 of 256; with masked-image latents 384 in all.
    const latents = pack(numbered(16, 64, 64), 2);
    const mask = pack(unshuffle(numbered(1, 512, 512), 8), 2);
    expect([latents.length, mask.length]).toEqual([1024 * 64, 1024 * 256]);
    expect(concatChannels(1024, latents, latents, mask).length).toBe(1024 * 384);
  });
});

describe('unshuffle', () => {
  it('gives each place of a square a plane', () => {
    const { channels, height, width, data } = unshuffle(numbered(1, 2, 4), 2);
    expect([channels, height, width]).toEqual([4, 1, 2]);
    expect([...data]).toEqual([0, 2, 1, 3, 4, 6, 5, 7]);
  });
});

describe('beside', () => {
  it('joins the features of every token', () => {
    expect([...concatChannels(2, Float32Array.of(1, 2), Float32Array.of(3, 4, 5, 6))]).toEqual([1, 3, 4, 2, 5, 6]);
  });
});
