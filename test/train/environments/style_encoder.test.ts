import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { StyleEncoder } from '../../../src/train/environments/style_encoder.js';
import { EmbeddingModel } from '../../../src/rewards/terms/clip/model.js';
import { drawPicture, fixture, tinyClip, tinySiglip, type Picture } from '../../rewards/terms/clip/pictures.js';

const cpu = { provider: 'cpu' } as const;

function expectClose(found: ArrayLike<number>, wanted: readonly number[], within: number): void {
  expect(found.length).toBe(wanted.length);
  expect(Math.max(...wanted.map((value, i) => Math.abs(value - found[i])))).toBeLessThan(within);
  expect(new Set(wanted).size).toBeGreaterThan(wanted.length / 4);
}

describe('the encoder of style images', () => {
  it('is a SigLIP: the features of its pooling head in transformers', async () => {
    const { images, features } = fixture<{ images: readonly Picture[]; features: readonly number[][] }>(
      'siglip_cosines.json',
    );
    const encoder = new StyleEncoder(tinySiglip, cpu);
    expect(encoder.width).toBe(8);
    for (const [i, image] of images.entries()) {
      expectClose(await encoder.encode(drawPicture(image)), features[i], 1e-5);
    }
    await encoder.dispose();
  });

  it('is a CLIP: its projection, as the reward computes it', async () => {
    const model = await EmbeddingModel.open(tinyClip);
    const encoder = new StyleEncoder(tinyClip, cpu);
    const image = drawPicture({ width: 64, height: 48, kind: 'bands' });
    expectClose(await encoder.encode(image), [...(await model.imageEmbedding(image))], 1e-4);
    expect(encoder.width).toBe(8);
    await Promise.all([encoder.dispose(), model.close()]);
  });

  it('is rejected before its first use', () => {
    const root = mkdtempSync(join(tmpdir(), 'editrl-style-'));
    onTestFinished(() => rmSync(root, { recursive: true }));
    const changed = (changes: object): string => {
      const folder = mkdtempSync(join(root, 'style-'));
      cpSync(tinySiglip, folder, { recursive: true });
      const config = JSON.parse(readFileSync(join(folder, 'config.json'), 'utf8')) as { vision_config: object };
      const vision_config = { ...config.vision_config, ...changes };
      writeFileSync(join(folder, 'config.json'), JSON.stringify({ ...config, vision_config }));
      return folder;
    };
    expect(() => new StyleEncoder(changed({ vision_use_head: false }))).toThrow('images have no embedding');
    expect(() => new StyleEncoder(changed({ image_size: 23 }))).toThrow('resized to 20x20 pixels');
    expect(() => new StyleEncoder(changed({ intermediate_size: 17 }))).toThrow('the config needs [17, 8]');
  });
});
