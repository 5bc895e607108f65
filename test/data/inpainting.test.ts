import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { DataError } from '../../src/core/errors.js';
import { encodePng } from '../../src/core/images/image.js';
import { encodePlainPng, type RgbImage } from '../../src/core/images/png.js';
import { checkDataset, findDatalists } from '../../src/data/check.js';
import { type Mask, checkSamples, readTriplet, styleCrop } from '../../src/data/inpainting.js';
import { openSelfBench, readSelfBench } from '../../src/data/self_bench.js';
import type { StyleCrop } from '../../src/config/schema/data.js';
import { testFolders } from '../support/folder.js';
import { benchFiles, maskOf, writeBench } from './bench.js';
import { plain } from './image_files.js';

const newFolder = testFolders('inpainting');

async function problemOf(changes: Readonly<Record<string, Uint8Array | string>>): Promise<string> {
  const bench = openSelfBench(writeBench(newFolder(), changes));
  const failed: unknown = await readTriplet(bench.read(1)).then(
    () => new Error('it was not refused'),
    (error: unknown) => error,
  );
  if (failed instanceof DataError) return failed.toText();
  throw failed;
}

describe('a sample as pixels', () => {
  it('has images of one size and a mask of zeros and ones', async () => {
    const { source, mask, ref } = await readTriplet(openSelfBench(writeBench(newFolder())).read(1));
    expect([...source.data.slice(0, 3), ...ref.data.slice(0, 3)]).toEqual([2, 0, 0, 0, 2, 0]);
    expect([source.width, source.height, ref.width, ref.height, mask.width, mask.height]).toEqual([6, 4, 6, 4, 6, 4]);
    const row = (y: number): number[] => [...mask.data.slice(y * 6, y * 6 + 6)];
    expect([0, 1, 2, 3].map(row)).toEqual([Array(6).fill(0), [0, 1, 1, 1, 1, 1], Array(6).fill(0), Array(6).fill(0)]);
  });

  it('reports which sizes differ', async () => {
    const message = await problemOf({ '2_mask.png': encodePlainPng(maskOf(() => true, 255, 5)) });
    expect(message).toContain('2_source.png: the images of sample 2 differ in size: source 6x4, mask 5x4, ref 6x4');
    expect(await problemOf({ '2_ref.png': plain(6, 5, [1, 1, 1]) })).toContain('ref 6x5');
  });

  it('rejects a mask that is empty, or not black and white', async () => {
    expect(await problemOf({ '2_mask.png': plain(6, 4, [0, 0, 0]) })).toContain('2_mask.png: the mask is empty');
    const grey = await problemOf({ '2_mask.png': encodePlainPng(maskOf((x) => x < 2, 254)) });
    expect(grey).toContain('2_mask.png: the mask is not binary: 8 of its 24 pixels are neither black nor white');
    expect(await problemOf({ '2_mask.png': plain(6, 4, [255, 0, 0]) })).toContain('24 of its 24 pixels');
  });

  it('names every image that cannot be decoded', async () => {
    const whole = await encodePng({ width: 6, height: 4, data: new Uint8Array(72) });
    const message = await problemOf({ '2_mask.png': whole.subarray(0, 40), '2_ref.png': 'no picture' });
    expect(message).toMatch(/2_mask\.png: cannot decode the image.*; .*2_ref\.png: cannot decode the image/);
  });
});

describe('data check', () => {
  it('lists every broken sample, and passes over none', async () => {
    const numbers = Array.from({ length: 40 }, (_, i) => i + 1);
    const files = benchFiles(numbers);
    const folder = newFolder();
    const black = plain(6, 4, [0, 0, 0]);
    const empty = Object.fromEntries(numbers.slice(5, 35).map((number) => [`${number}_mask.png`, black]));
    const list = `${String(files['self_bench.txt'])}41 gone\n40 again\n`;
    writeBench(folder, { ...files, ...empty, '40_ref.png': plain(3, 3, [1, 2, 3]), 'self_bench.txt': list });
    const [found] = findDatalists(folder);
    expect(found).toBe(join(folder, 'self_bench.txt'));
    const report = await checkDataset(found);
    expect(report).toMatchObject({ path: found, kind: 'inpainting', samples: 42, sizes: ['6x4'], remark: null });
    const said = report.problems.map((problem) => problem.toText());
    expect(said).toHaveLength(1 + 3 + 30 + 1);
    for (const number of numbers.slice(5, 35)) {
      expect(said.filter((text) => text.includes(`/${number}_mask.png: the mask is empty`))).toHaveLength(1);
    }
    expect(said.filter((text) => text.includes('40_source.png: the images of sample 40 differ'))).toHaveLength(1);
  });
});

describe('the style crop', () => {
  const width = 5;
  const height = 4;
  // Every pixel holds its place, so that a crop tells where it is from.
  const ref = { width, height, data: Uint8Array.from({ length: 60 }, (_, at) => Math.floor(at / 3)) };
  const mask = (rows: readonly string[]): Mask => ({
    width: rows[0].length,
    height: rows.length,
    data: Uint8Array.from([...rows.join('')], (letter) => (letter === '#' ? 1 : 0)),
  });
  const hole = mask(['.....', '.##..', '.##..', '.....']);
  const crop = (rule: StyleCrop, of = hole): unknown => {
    const { width: wide, height: high, data } = styleCrop(ref, of, rule, 'here');
    return { wide, high, first: data[0], last: data[data.length - 1] };
  };

  it('is the whole image', () => {
    expect(styleCrop(ref, hole, 'whole', 'here')).toEqual(ref);
  });

  it('outside the mask is the largest rectangle that holds nothing of it', () => {
    expect(crop('outside_mask')).toEqual({ wide: 2, high: 4, first: 3, last: 19 });
    const strip = mask(['#####', '#####', '.....', '.....']);
    expect(crop('outside_mask', strip)).toEqual({ wide: 5, high: 2, first: 10, last: 19 });
    const stairs = mask(['#..##', '#...#', '##...', '###..']);
    expect(crop('outside_mask', stairs)).toEqual({ wide: 2, high: 2, first: 1, last: 7 });
  });

  it('agrees with a search over all rectangles', () => {
    let state = 1;
    const random = (): number => (state = (state * 48271) % 2147483647) / 2147483647;
    for (let trial = 0; trial < 200; trial++) {
      const data = Uint8Array.from({ length: 20 }, () => (random() < 0.35 ? 1 : 0));
      let best = 0;
      for (let top = 0; top < height; top++) {
        for (let left = 0; left < width; left++) {
          for (let bottom = top + 1; bottom <= height; bottom++) {
            for (let right = left + 1; right <= width; right++) {
              let masked = 0;
              for (let y = top; y < bottom; y++) for (let x = left; x < right; x++) masked += data[y * width + x];
              if (masked === 0) best = Math.max(best, (bottom - top) * (right - left));
            }
          }
        }
      }
      const found = styleCrop(ref, { width, height, data }, 'outside_mask', 'here');
      expect(found.width * found.height).toBe(best);
      const pixels = Array.from({ length: found.width * found.height }, (_, i) => found.data[3 * i]);
      expect(pixels.map((place) => data[place])).toEqual(pixels.map(() => 0));
    }
  });

  it('cannot be outside of a mask that covers everything', () => {
    const all = mask(['#####', '#####', '#####', '#####']);
    expect(() => crop('outside_mask', all)).toThrow(/covers the whole image/);
  });

  it("is the box around the mask without its last row and column, as Calligrapher's loader crops it", () => {
    const patch = mask(['.....', '.##..', '.####', '.....']);
    expect(crop('mask', patch)).toEqual({ wide: 3, high: 1, first: 6, last: 8 });
    const dot = mask(['.....', '..#..', '.....', '.....']);
    expect(crop('mask', dot)).toEqual({ wide: 1, high: 1, first: 7, last: 7 });
  });

  it('is black beyond a smaller ref, the whole of one that is the box already, and refused beside it', () => {
    const patch = mask(['.....', '.####', '.####', '.####']);
    const small = (width: number, height: number): RgbImage => ({
      width,
      height,
      data: new Uint8Array(3 * width * height).fill(9),
    });
    const kind = 'mask' as const;
    const found = styleCrop(small(3, 2), patch, kind, 'here');
    expect([found.width, found.height]).toEqual([3, 2]);
    expect([...found.data].filter((_, at) => at % 3 === 0)).toEqual([9, 9, 0, 0, 0, 0]);
    expect(styleCrop(small(4, 3), patch, kind, 'here')).toEqual(small(4, 3));
    expect(() => styleCrop(small(1, 4), patch, kind, 'a_ref.png')).toThrow(
      /the ref has 1x4 pixels, and its mask 5x4, white from \(1, 1\) on/,
    );
    expect(() => styleCrop(small(4, 4), patch, 'outside_mask', 'here')).toThrow(/the ref has 4x4 pixels/);
  });
});

interface Square {
  readonly size: readonly [number, number];
  readonly side: number;
  readonly picture: string;
  readonly mask: string;
  readonly square: string;
  readonly squareMask: string;
}
const squares = JSON.parse(
  readFileSync(new URL('./fixtures/squares.json', import.meta.url), 'utf8'),
) as readonly Square[];

describe('samples as squares', () => {
  it.each(squares)(
    "are torchvision's Resize and CenterCrop with Pillow's pixels, from $size to $side",
    async (each) => {
      const [width, height] = each.size;
      const bytes = (text: string): Uint8Array => new Uint8Array(Buffer.from(text, 'base64'));
      const picture = encodePlainPng({ width, height, data: bytes(each.picture) });
      const white = bytes(each.mask);
      const masked = encodePlainPng({
        width,
        height,
        data: Uint8Array.from({ length: 3 * width * height }, (_, at) => 255 * white[Math.floor(at / 3)]),
      });
      const files = { '2_source.png': picture, '2_mask.png': masked, '2_ref.png': plain(3, 8, [1, 2, 3]) };
      const sample = openSelfBench(writeBench(newFolder(), files)).read(1);
      await expect(readTriplet(sample)).rejects.toThrow(/differ in size/);
      const { source, mask, ref, stored } = await readTriplet(sample, each.side);
      expect(Buffer.from(source.data).toString('base64')).toBe(each.square);
      expect(Buffer.from(mask.data).toString('base64')).toBe(each.squareMask);
      expect([source.width, source.height, mask.width, ref.width, ref.height]).toEqual(Array(5).fill(each.side));
      expect([stored.ref.width, stored.mask.width]).toEqual([3, width]);
    },
  );

  it('say where nothing of the mask is left', async () => {
    const edge = { '2_mask.png': encodePlainPng(maskOf((x) => x === 0)) };
    const sample = openSelfBench(writeBench(newFolder(), edge)).read(1);
    await expect(readTriplet(sample, 4)).rejects.toThrow(
      /the center square of 4x4 pixels contains no part of the mask/,
    );
  });

  it('are checked as squares before a run, without their sizes', async () => {
    const folder = writeBench(newFolder(), { '2_ref.png': plain(3, 8, [1, 2, 3]) });
    const list = readSelfBench(folder);
    expect(
      checkSamples(list)
        .map(({ message }) => message)
        .join(),
    ).toContain('differ in size');
    expect(checkSamples(list, 2, 4)).toEqual([]);
    expect(checkSamples(list, 4, 6)[0].toText()).toContain(
      'data.resolution: found 6, which is not a multiple of the patch size 4',
    );
    const [found] = findDatalists(folder);
    expect((await checkDataset(found)).problems).toHaveLength(1);
    expect(await checkDataset(found, { resolution: 4 })).toMatchObject({ sizes: ['4x4'], problems: [] });
  });
});
