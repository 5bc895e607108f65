import { describe, expect, it } from 'vitest';
import { must } from '../../../src/core/errors.js';
import { encodePlainPng } from '../../../src/core/images/png.js';
import { Datasets } from '../../../src/data/datasets.js';
import type { InpaintSample } from '../../../src/data/self_bench.js';
import type { SampleSource } from '../../../src/data/types.js';
import type { CheckpointFiles } from '../../../src/models/files.js';
import { openAutoencoder } from '../../../src/models/networks/autoencoder.js';
import { autoencoderInit } from '../../../src/config/schema/model.js';
import { optimizer } from '../../../src/config/schema/training.js';
import { autoencoderNetwork } from '../../../src/train/pretraining/image_autoencoder.js';
import { Pretraining } from '../../../src/train/pretraining/pretraining.js';
import { writeCheckpoint } from '../../support/checkpoint.js';
import { testFolders } from '../../support/folder.js';

/** Flat images of many colours. */
function images(count: number, width: number, height: number): SampleSource<InpaintSample> {
  const png = (index: number): Uint8Array => {
    const data = Uint8Array.from({ length: 3 * width * height }, (_, i) => (index * 53 + (i % 3) * 97) % 256);
    return encodePlainPng({ width, height, data });
  };
  return {
    name: 'flat',
    length: count,
    remark: null,
    digest: { algorithm: 'none', value: '' } as never,
    read: (index) => {
      const bytes = png(index);
      const path = `${index}.png`;
      const paths = { source: path, mask: path, ref: path };
      return { id: String(index), prompt: '', sourcePng: bytes, maskPng: bytes, refPng: bytes, paths };
    },
  };
}

async function open(train = images(16, 8, 4), heldOut = [images(8, 8, 4)]) {
  const sources = new Map([['train', train], ...heldOut.map((source, i) => [`held out ${i}`, source] as const)]);
  const listed = (paths: readonly string[]) => paths.map((path) => ({ path, coefficient: null }));
  const [first, ...others] = [...sources.keys()];
  const settings = { seed: 5, data: { train: listed([first]), validation: listed(others) } };
  const data = Datasets.of(settings, ({ path }) => must(sources.get(path), path));
  const init = autoencoderInit.parse({ latent_channels: 4, block_out_channels: [8, 8], norm_num_groups: 4 });
  const network = await autoencoderNetwork({ seed: 5, init, klWeight: 1e-3, size: 8 }, train);
  return Pretraining.open(
    {
      optimizer: optimizer.parse({ learning_rate: 3e-3 }),
      schedule: { schedule: 'constant', learningRate: 3e-3, warmupSteps: 0 },
      sft: { batch_size: 8, patience: null, min_delta: 0 },
      data,
      validation: { prompts: 8 },
      session: { threads: 1 },
    },
    network,
  );
}

const newFolder = testFolders('autoencoder');
const saved = (files: CheckpointFiles): string => writeCheckpoint(newFolder(), files);

describe('training an autoencoder', () => {
  it('learns images, continues bit by bit, and leaves a model whose latents have the spread of noise', async () => {
    const whole = await open();
    const before = (await whole.evaluate(0))['validation/loss'];
    for (let i = 1; i <= 20; i++) await whole.step(i);
    const half = saved(await whole.files(20));
    for (let i = 21; i <= 60; i++) await whole.step(i);
    const after = (await whole.evaluate(60))['validation/loss'];
    expect(after).toBeLessThan(before / 4);
    const resumed = await open();
    await resumed.restore(half);
    for (let i = 21; i <= 60; i++) await resumed.step(i);
    expect(await resumed.checksum()).toBe(await whole.checksum());
    expect((await resumed.files(60))['config.json']).toBe((await whole.files(60))['config.json']);
    const { config } = openAutoencoder(saved(await whole.files(60)));
    expect(config.scaling_factor).toBeGreaterThan(0.2);
    expect(config.scaling_factor).not.toBe(1);
    await Promise.all([whole.dispose(), resumed.dispose()]);
  });

  it('rejects images that are no whole latents, and one of another size', async () => {
    await expect(open(images(8, 7, 4))).rejects.toThrow('an image of 7x4 pixels is not a multiple of 2 pixels');
    const flat = images(8, 8, 4);
    const mixed = { ...flat, read: (index: number) => (index === 0 ? flat : images(8, 4, 4)).read(index) };
    const training = await open(mixed);
    await expect(training.step(1)).rejects.toThrow('found 4x4 pixels among images of 8x4');
    await training.dispose();
  });
});
