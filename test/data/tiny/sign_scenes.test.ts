import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { ConfigError } from '../../../src/core/errors.js';
import { checkDataset, findDatalists } from '../../../src/data/check.js';
import { readTriplet, styleCrop } from '../../../src/data/inpainting.js';
import { openSelfBench } from '../../../src/data/self_bench.js';
import { targetOf } from '../../../src/rewards/terms/ocr/similarity.js';
import {
  ALPHABET,
  DEFAULT_SIGN,
  drawSignScene,
  drawStyledSign,
  isHeldOut,
  signData,
  SIGN_SPLITS,
  UNKNOWN,
  type SignScene,
  type SignSplit,
  type SignWorld,
} from '../../../src/data/tiny/sign_scenes.js';
import { testFolders } from '../../support/folder.js';

const newFolder = testFolders('signs');
const world: SignWorld = {
  seed: 3,
  geometry: DEFAULT_SIGN,
  letters: 3,
  labelledInk: [0.3, 0.9],
  sizes: { labelled: 5, train: 8, validation: 6 },
};
const many = 300;
const drawn = (split: SignSplit, seed = 3, length = many): SignScene[] =>
  Array.from({ length }, (_, i) => drawSignScene({ ...world, seed }, split, i));

const pixel = ({ data, width }: SignScene['images']['ref'], x: number, y: number): number[] => [
  ...data.slice((y * width + x) * 3, (y * width + x) * 3 + 3),
];

describe('signs', () => {
  it('are the same for the same seed and place, and others for another', () => {
    const few = (split: SignSplit, seed?: number) => drawn(split, seed, 20);
    expect(few('train')).toEqual(few('train'));
    expect(few('train', 4)).not.toEqual(few('train'));
    expect(few('labelled')).not.toEqual(few('train'));
  });

  it('never show a held-out word in the other splits, whatever the seed', () => {
    const words = (split: SignSplit) => new Set([3, 4].flatMap((seed) => drawn(split, seed).map(({ word }) => word)));
    const heldOut = words('validation');
    for (const split of ['labelled', 'train'] as const) {
      expect([...words(split)].filter((word) => heldOut.has(word))).toEqual([]);
    }
    expect(heldOut.size).toBeGreaterThan(many / 2);
    const all = [...ALPHABET].flatMap((a) => [...ALPHABET].map((b) => `${a}${b}A`));
    const share = all.filter(isHeldOut).length / all.length;
    expect(share).toBeGreaterThan(0.18);
    expect(share).toBeLessThan(0.32);
  });

  it('have the word where the mask is white, and show nothing of it elsewhere', () => {
    for (const { ink, paper, images } of drawn('train', 3, 20)) {
      const { source, mask, ref } = images;
      const blank = drawStyledSign('', { ink, paper }, DEFAULT_SIGN);
      expect(ref.data).not.toEqual(blank.data);
      for (let y = 0; y < 16; y++) {
        for (let x = 0; x < 32; x++) {
          const white = pixel(mask, x, y)[0] === 255;
          expect(white).toBe(y < 12);
          expect(pixel(source, x, y)).toEqual(white ? [...UNKNOWN] : pixel(ref, x, y));
          if (!white) expect(pixel(ref, x, y)).toEqual(pixel(blank, x, y));
        }
      }
    }
  });

  it('are worn where they are labeled, and fresh elsewhere', () => {
    const strongest = (split: 'labelled' | 'train', index: number): number => {
      const { word, ink, paper, images } = drawSignScene(world, split, index);
      const fresh = drawStyledSign(word, { ink, paper }, world.geometry);
      const far = (data: Uint8Array): number =>
        data.subarray(0, 3 * 32 * 10).reduce((sum, value, i) => sum + Math.abs(value - paper[i % 3]), 0);
      return far(images.ref.data) / far(fresh.data);
    };
    for (let i = 0; i < 8; i++) expect(strongest('train', i)).toBe(1);
    const worn = Array.from({ length: 40 }, (_, i) => strongest('labelled', i));
    expect(Math.min(...worn)).toBeGreaterThan(0.27);
    expect(Math.min(...worn)).toBeLessThan(0.4);
    expect(Math.max(...worn)).toBeGreaterThan(0.8);
    expect(Math.max(...worn)).toBeLessThan(0.93);
  });

  it('show both colors in the strip, clearly apart', () => {
    for (const { ink, paper, images } of drawn('validation')) {
      expect([pixel(images.ref, 0, 12), pixel(images.ref, 31, 13)]).toEqual([[...paper], [...paper]]);
      expect([pixel(images.ref, 31, 14), pixel(images.ref, 0, 15)]).toEqual([[...ink], [...ink]]);
      const light = ([r, g, b]: readonly number[]): number => 0.299 * r + 0.587 * g + 0.114 * b;
      expect(Math.abs(light(ink) - light(paper))).toBeGreaterThanOrEqual(110);
    }
    const light = drawn('train').filter(({ ink, paper }) => ink[1] > paper[1]).length;
    expect(light).toBeGreaterThan(many / 4);
    expect(light).toBeLessThan((3 * many) / 4);
  });
});

describe('the signs on disk', () => {
  it('are datasets that pass their own check, made whole', async () => {
    const root = newFolder();
    expect(signData.find(root, world)).toBeNull();
    await signData.makeIn(root, world);
    const folder = signData.find(root, world)!;
    expect(readdirSync(root).sort()).toEqual(['signs', folder.slice(root.length + 1)].sort());
    const lists = findDatalists(folder);
    expect(lists).toEqual([...SIGN_SPLITS].sort().map((split) => join(folder, 'signs', split, 'self_bench.txt')));
    for (const split of SIGN_SPLITS) {
      const report = await checkDataset(join(folder, 'signs', split, 'self_bench.txt'), { checkPrompt: targetOf });
      expect(report).toMatchObject({ samples: world.sizes[split], sizes: ['32x16'], problems: [] });
      expect(existsSync(join(folder, 'signs', split, 'SHA256SUMS'))).toBe(true);
    }
    const bench = openSelfBench(join(folder, 'signs', 'validation'));
    const { prompt, ink, paper, images } = drawSignScene(world, 'validation', 4);
    const sample = bench.read(4);
    expect(sample.prompt).toBe(prompt);
    const { source, mask, ref } = await readTriplet(sample);
    expect([source, ref]).toEqual([images.source, images.ref]);
    const style = styleCrop(ref, mask, 'outside_mask', 'here');
    expect([style.width, style.height]).toEqual([32, 4]);
    expect([pixel(style, 0, 0), pixel(style, 0, 3)]).toEqual([[...paper], [...ink]]);
  });

  it('are rejected if a word does not fit', async () => {
    const wide = { ...world, letters: 5 };
    await expect(signData.makeIn(newFolder(), wide)).rejects.toThrow(/'AAAAA' needs 40x10 pixels, but only 32x10/);
    const narrow = { ...world, geometry: { width: 23, height: 16 } };
    await expect(signData.makeIn(newFolder(), narrow)).rejects.toThrow(ConfigError);
  });
});
