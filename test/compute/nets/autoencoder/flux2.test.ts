import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { CheckpointError } from '../../../../src/core/errors.js';
import { encodeSafetensors, readSafetensors, readSafetensorsIndex } from '../../../../src/core/safetensors.js';
import { Graph, sizeOf } from '../../../../src/compute/graph/ir.js';
import { Session } from '../../../../src/compute/onnx/session.js';
import { describeAutoencoder, frozenParameters } from '../../../../src/models/networks/autoencoder.js';
import { AutoencoderCodec } from '../../../../src/train/environments/image_codec.js';
import { savedAutoencoder, worst } from './saved.js';

const { fixture, of, changed, newFolder } = savedAutoencoder('flux2');
const WEIGHTS = 'diffusion_pytorch_model.safetensors';
const COUNT = 'bn.num_batches_tracked';

describe("FLUX.2's autoencoder that diffusers saved", () => {
  it('has the latents and images of the pipeline to 5e-6 of the largest', async () => {
    const net = describeAutoencoder(fixture);
    const graph = new Graph('autoencoder');
    const session = await Session.compile(graph, {
      encoded: net.encode(graph.input('pictures', [2, 3, 8, 12])),
      decoded: net.decode(graph.input('latents', [2, 12, 2, 3])),
    });
    const found = await session.run({ pictures: of('pictures'), latents: of('latents') }, net.weights(fixture));
    await session.dispose();
    expect(worst(found['encoded'] as Float32Array, of('encoded'))).toBeLessThan(5e-6);
    expect(worst(found['decoded'] as Float32Array, of('decoded'))).toBeLessThan(5e-6);
  });

  it('is a codec of the transformer’s tokens', async () => {
    const codec = AutoencoderCodec.open(fixture, { threads: 1 });
    expect([codec.channels, codec.reduction]).toEqual([12, 4]);
    const image = { width: 12, height: 8, data: Uint8Array.from({ length: 288 }, (_, i) => (i * 37) % 256) };
    const [latents] = await codec.encode([image]);
    expect(latents).toMatchObject({ channels: 12, width: 3, height: 2 });
    const [decoded] = await codec.decode([latents]);
    expect(decoded).toMatchObject({ width: 12, height: 8 });
    await codec.dispose();
  });

  it.each([
    ['other squares', { patch_size: [4, 4] }, /patch_size: 0: only \[2, 2\] is supported/],
    ['four channels of images', { in_channels: 4 }, /in_channels: only 3 is supported/],
    ['another activation', { act_fn: 'gelu' }, /act_fn: only 'silu' is supported/],
    ['other levels', { down_block_types: ['AttnDownEncoderBlock2D', 'DownEncoderBlock2D'] }, /down_block_types/],
    ['a key that is not known', { scaling_factor: 0.5 }, /scaling_factor/],
    [
      'a decoder of other levels',
      { decoder_block_out_channels: [2] },
      /decoder_block_out_channels has 1 values, and block_out_channels 2/,
    ],
    ['uneven groups', { decoder_block_out_channels: [3, 6] }, /a level has 3 channels.*norm_num_groups 2/],
  ])('is rejected with %s', (_, change, message) => {
    const folder = changed(change);
    expect(() => describeAutoencoder(folder)).toThrow(message);
    expect(() => describeAutoencoder(folder)).toThrow(CheckpointError);
  });

  it('is rejected with a tensor that nothing reads', () => {
    const folder = changed({});
    const file = join(folder, WEIGHTS);
    const names = [...readSafetensorsIndex(file).entries.keys()];
    expect(names).toContain(COUNT);
    const tensors = readSafetensors(
      file,
      names.filter((name) => name !== COUNT),
    );
    tensors.set('bn.weight', { shape: [12], data: new Float32Array(12) });
    writeFileSync(file, encodeSafetensors(tensors));
    expect(() => describeAutoencoder(folder).weights(folder)).toThrow('unused tensors: bn.weight');
  });

  it('counts the parameters of the published one, with its stored means and variances', () => {
    const folder = newFolder();
    writeFileSync(join(folder, 'config.json'), JSON.stringify({ _class_name: 'AutoencoderKLFlux2' }));
    const net = describeAutoencoder(folder);
    expect([net.channels, net.reduction]).toEqual([128, 16]);
    const count = [...frozenParameters(net).values()].reduce((sum, shape) => sum + sizeOf(shape), 0);
    expect(count).toBe(84_046_115 + 2 * 128);
  });
});
