import { describe, expect, it } from 'vitest';
import { RandomStream } from '../../../../src/core/random.js';
import { Session } from '../../../../src/compute/onnx/session.js';
import { Graph } from '../../../../src/compute/graph/ir.js';
import {
  autoencoderLoss,
  decodeLatents,
  encodeImages,
  initAutoencoder,
} from '../../../../src/compute/nets/autoencoder/autoencoder.js';
import { readAutoencoderConfig } from '../../../../src/compute/nets/autoencoder/config.js';

const config = readAutoencoderConfig(
  {
    _class_name: 'AutoencoderKL',
    latent_channels: 2,
    block_out_channels: [4, 8],
    norm_num_groups: 2,
    use_quant_conv: false,
    use_post_quant_conv: false,
    mid_block_add_attention: false,
  },
  'here',
);

function numbers(count: number, ...key: (string | number)[]): Float32Array {
  const random = new RandomStream(...(key as [string]));
  return Float32Array.from({ length: count }, () => random.normal());
}

describe('the loss of an autoencoder', () => {
  it('is the error of what is decoded, and the weighed divergence of the latents', async () => {
    const weights = initAutoencoder(config, 3);
    const pictures = numbers(2 * 3 * 4 * 8, 'pictures');
    const noise = numbers(2 * 2 * 2 * 4, 'noise');
    const graph = new Graph('loss');
    const outputs = autoencoderLoss(config, graph.input('x', [2, 3, 4, 8]), graph.input('noise', [2, 2, 2, 4]), 0.3);
    const session = await Session.compile(graph, { ...outputs }, { threads: 1 });
    const found = await session.run({ x: pictures, noise }, weights);
    const apart = new Graph('parts');
    const { mean, logVariance } = encodeImages(config, apart.input('x', [2, 3, 4, 8]));
    const parts = await Session.compile(apart, { mean, logVariance }, { threads: 1 });
    const moments = await parts.run({ x: pictures }, weights);
    const [means, logs] = [moments['mean'] as Float32Array, moments['logVariance'] as Float32Array];
    const drawn = means.map((value, i) => value + Math.exp(logs[i] / 2) * noise[i]);
    const back = new Graph('decoder');
    const decoder = await Session.compile(back, { y: decodeLatents(config, back.input('z', [2, 2, 2, 4])) });
    const decoded = (await decoder.run({ z: drawn }, weights))['y'] as Float32Array;
    await Promise.all([session, parts, decoder].map((each) => each.dispose()));
    let [error, divergence, squares] = [0, 0, 0];
    decoded.forEach((value, i) => (error += (value - pictures[i]) ** 2 / decoded.length));
    means.forEach((value, i) => {
      divergence += (value ** 2 + Math.exp(logs[i]) - logs[i] - 1) / 2;
      squares += value ** 2 / means.length;
    });
    const scalar = (name: string): number => (found[name] as Float32Array)[0];
    expect(scalar('reconstruction')).toBeCloseTo(error, 5);
    expect(scalar('meanSquare')).toBeCloseTo(squares, 5);
    expect(scalar('loss')).toBeCloseTo(error + (0.3 * divergence) / pictures.length, 5);
  });
});
