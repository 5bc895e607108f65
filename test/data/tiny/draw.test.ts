import { describe, expect, it } from 'vitest';
import { drawScene, templates } from '../../../src/data/tiny/draw.js';
import { decodeImage, encodePng } from '../../../src/core/images/image.js';
import { decodePlainPng, encodePlainPng } from '../../../src/core/images/png.js';
import { checkGeometry, DEFAULT_GEOMETRY } from '../../../src/data/tiny/world.js';
import { example, noisy, uniformNoise } from './scene_pictures.js';

describe('drawing', () => {
  it.each([8, 10, 16])('keeps any two contents of a %i pixel cell far apart', (side) => {
    const all = templates(side);
    expect(all).toHaveLength(25);
    for (const [i, a] of all.entries()) {
      for (const b of all.slice(i + 1)) {
        const squares = a.pixels.reduce((sum, value, at) => sum + (value - b.pixels[at]) ** 2, 0);
        expect(Math.sqrt(squares / a.pixels.length)).toBeGreaterThan(42);
      }
    }
  });

  it('rejects grids whose cells have no names or no pixels', () => {
    for (const wrong of [{ columns: 27 }, { rows: 2 }, { cell: 4 }, { columns: 4.5 }]) {
      expect(() => checkGeometry({ ...DEFAULT_GEOMETRY, ...wrong })).toThrow(/not possible/);
    }
  });
});

describe('plain PNG', () => {
  it('is read by libvips with the same pixels, and the other way round', async () => {
    for (const image of [drawScene(example(5).source), uniformNoise(1), noisy(drawScene(example(6).source), 5, 1)]) {
      const bytes = encodePlainPng(image);
      expect((await decodeImage(bytes, 'test')).data).toEqual(image.data);
      expect(decodePlainPng(bytes)).toEqual(image);
      expect(decodePlainPng(await encodePng(image))).toEqual(image);
    }
  });

  it('undoes every row filter', async () => {
    const { default: sharp } = await import('sharp');
    const image = noisy(drawScene(example(7).source), 3, 2);
    const raw = { width: 32, height: 32, channels: 3 } as const;
    const filtered = await sharp(image.data, { raw }).png({ adaptiveFiltering: true }).toBuffer();
    expect(decodePlainPng(filtered)).toEqual(image);
  });

  it('leaves what it does not know or what is broken to libvips', async () => {
    const { default: sharp } = await import('sharp');
    const image = drawScene(example(8).source);
    const raw = { width: 32, height: 32, channels: 3 } as const;
    const clear = await sharp(image.data, { raw }).ensureAlpha(0).png().toBuffer();
    expect(decodePlainPng(clear)).toBeNull();
    // As PIL's convert('RGB') does, alpha is dropped and the colors stay.
    expect((await decodeImage(clear, 'test')).data).toEqual(image.data);
    const bytes = Buffer.from(encodePlainPng(image));
    expect(decodePlainPng(bytes.subarray(0, bytes.length - 20))).toBeNull();
    bytes[45] ^= 1;
    expect(decodePlainPng(bytes)).toBeNull();
    await expect(decodeImage(Buffer.from('nothing'), 'here')).rejects.toMatchObject({ code: 'data', where: 'here' });
  });
});
