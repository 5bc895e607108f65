import { fileURLToPath } from 'node:url';
import { join } from 'node:path';
import { afterAll, describe, expect, it, vi } from 'vitest';
import type { RgbImage } from '../../../src/core/images/image.js';
import { toPlanes } from '../../../src/core/images/planes.js';
import { Session } from '../../../src/compute/onnx/session.js';
import { AutoencoderCodec, pixelCodec } from '../../../src/train/environments/image_codec.js';
import { Graph } from '../../../src/compute/graph/ir.js';
import { frozenAutoencoder, openAutoencoder } from '../../../src/models/networks/autoencoder.js';
import { encodeImages } from '../../../src/compute/nets/autoencoder/autoencoder.js';

const folder = join(fileURLToPath(new URL('../../compute/nets/autoencoder/fixtures', import.meta.url)), 'two_levels');

const image = (width: number, height: number, seed: number): RgbImage => ({
  width,
  height,
  data: Uint8Array.from({ length: 3 * width * height }, (_, i) => (i * 37 + seed * 101) % 256),
});

describe('pixels', () => {
  it('are their own latents', async () => {
    const given = [image(4, 2, 1), image(3, 5, 2)];
    expect(await pixelCodec.decode(await pixelCodec.encode(given))).toEqual(given);
  });
});

describe('an autoencoder', () => {
  const { config, weights } = openAutoencoder(folder);
  const scaled = { ...config, scaling_factor: 0.5, shift_factor: 0.25 };
  const codec = new AutoencoderCodec(frozenAutoencoder(scaled), weights, { threads: 1 });
  afterAll(() => codec.dispose());

  it('gives the means of its encoder, moved and scaled as diffusion models see them', async () => {
    const given = image(12, 8, 3);
    const [{ channels, height, width, data }] = await codec.encode([given]);
    const graph = new Graph('encoder');
    const { mean } = encodeImages(config, graph.input('x', [1, 3, 8, 12]));
    const session = await Session.compile(graph, { mean }, { threads: 1 });
    const means = (await session.run({ x: toPlanes(given).data }, weights))['mean'] as Float32Array;
    await session.dispose();
    expect([1, channels, height, width]).toEqual(mean.shape);
    means.forEach((value, i) => expect(data[i]).toBeCloseTo((value - 0.25) * 0.5, 6));
  });

  it('takes back what it made of latents, whatever their scale', async () => {
    const [latents] = await codec.encode([image(12, 8, 4)]);
    const plain = new AutoencoderCodec(frozenAutoencoder({ ...config, scaling_factor: 1, shift_factor: 0 }), weights, {
      threads: 1,
    });
    const [unscaled] = await plain.encode([image(12, 8, 4)]);
    const [[found], [wanted]] = [await codec.decode([latents]), await plain.decode([unscaled])];
    await plain.dispose();
    expect(found.width).toBe(12);
    found.data.forEach((value, i) => expect(Math.abs(value - wanted.data[i])).toBeLessThanOrEqual(1));
  });

  it('keeps what it compiled of a few sizes alone', async () => {
    const [compile, dispose] = [vi.spyOn(Session, 'compile'), vi.spyOn(Session.prototype, 'dispose')];
    const sizes = Array.from({ length: 20 }, (_, i) => image(4 * (i + 1), 8, i));
    await codec.encode(sizes);
    expect(compile.mock.calls.length - dispose.mock.calls.length).toBeLessThanOrEqual(8);
    expect(compile).toHaveBeenCalled();
    vi.restoreAllMocks();
  });

  it('makes the same bits of an image alone, with others, with others of another size and with more threads', async () => {
    const [first, second, wide] = [image(12, 8, 5), image(12, 8, 6), image(16, 8, 7)];
    const together = await codec.encode([first, wide, second]);
    expect((await codec.encode([second]))[0]).toEqual(together[2]);
    const threaded = new AutoencoderCodec(frozenAutoencoder(scaled), weights, { threads: 2 });
    expect(await threaded.encode([first, wide, second])).toEqual(together);
    await threaded.dispose();
    expect((await codec.decode([together[2]]))[0]).toEqual((await codec.decode(together))[2]);
  });
});
