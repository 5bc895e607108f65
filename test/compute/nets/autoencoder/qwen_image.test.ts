import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { CheckpointError } from '../../../../src/core/errors.js';
import { encodeSafetensors, readSafetensors } from '../../../../src/core/safetensors.js';
import { Session } from '../../../../src/compute/onnx/session.js';
import { AutoencoderCodec } from '../../../../src/train/environments/image_codec.js';
import { Graph } from '../../../../src/compute/graph/ir.js';
import { describeAutoencoder } from '../../../../src/models/networks/autoencoder.js';
import { savedAutoencoder, worst } from './saved.js';

const { fixture, of, changed } = savedAutoencoder('qwen_image');

describe("Qwen-Image's autoencoder that diffusers saved", () => {
  it('has the means and images of diffusers to 2e-5 of the largest', async () => {
    const net = describeAutoencoder(fixture);
    const graph = new Graph('autoencoder');
    const session = await Session.compile(graph, {
      means: net.encode(graph.input('pictures', [2, 3, 8, 12])),
      decoded: net.decode(graph.input('latents', [2, 3, 2, 3])),
    });
    const found = await session.run({ pictures: of('pictures'), latents: of('latents') }, net.weights(fixture));
    expect(worst(found.means as Float32Array, of('means'))).toBeLessThan(2e-5);
    // diffusers clips what it decodes.
    const clipped = (found.decoded as Float32Array).map((value) => Math.min(1, Math.max(-1, value)));
    expect(worst(clipped, of('decoded'))).toBeLessThan(2e-5);
  });

  it('gives latents (mean - latents_mean) / latents_std, and takes them', async () => {
    const codec = AutoencoderCodec.open(fixture, { threads: 1 });
    expect([codec.channels, codec.reduction]).toEqual([3, 4]);
    const picture = { width: 12, height: 8, data: Uint8Array.from({ length: 288 }, (_, i) => (i * 37) % 256) };
    const [{ data }] = await codec.encode([picture]);
    const plain = AutoencoderCodec.open(changed({ latents_mean: [0, 0, 0], latents_std: [1, 1, 1] }), { threads: 1 });
    const [means] = await plain.encode([picture]);
    const [shift, deviation] = [
      [-0.5, 0.25, 1],
      [2, 0.5, 1.5],
    ];
    means.data.forEach((mean, i) => {
      const channel = Math.floor(i / 6);
      expect(data[i]).toBeCloseTo((mean - shift[channel]) / deviation[channel], 5);
    });
    expect(await codec.decode([{ ...means, data }])).toEqual(await plain.decode([means]));
    await Promise.all([codec.dispose(), plain.dispose()]);
  });

  it.each([
    ['attention outside of its middle', { attn_scales: [0.5] }, /attn_scales/],
    ['four channels of pictures', { input_channels: 4 }, /input_channels/],
    ['a key that is not known', { is_residual: true }, /is_residual/],
    ['means of another number of channels', { latents_mean: [0] }, /latents_mean has 1 values, and z_dim is 3/],
    ['too few levels', { temperal_downsample: [true] }, /temperal_downsample has 1 values, dim_mult 3/],
    [
      'another class',
      { _class_name: 'AutoencoderKLWan' },
      /AutoencoderKLWan.*allowed: AutoencoderKL, AutoencoderKLFlux2, AutoencoderKLQwen/,
    ],
  ])('is rejected with %s', (_, change, message) => {
    const folder = changed(change);
    expect(() => describeAutoencoder(folder)).toThrow(message);
    expect(() => describeAutoencoder(folder)).toThrow(CheckpointError);
  });

  it('is rejected with a tensor that nothing reads', () => {
    const folder = changed({});
    const file = join(folder, 'diffusion_pytorch_model.safetensors');
    const tensors = readSafetensors(file);
    tensors.set('encoder.conv_extra.weight', { shape: [1], data: new Float32Array(1) });
    writeFileSync(file, encodeSafetensors(tensors));
    expect(() => describeAutoencoder(folder).weights(folder)).toThrow(/encoder\.conv_extra\.weight/);
  });
});
