import { describe, expect, it } from 'vitest';
import { DataError } from '../../../src/core/errors.js';
import type { RgbImage } from '../../../src/core/images/image.js';
import type { Outcome } from '../../../src/rewards/score/types.js';
import { imageSimilarity } from '../../../src/rewards/terms/image_similarity.js';
import { jpegSize } from '../../../src/rewards/terms/jpeg_size.js';
import { imageOf, termContract, wholeItem } from './term_contract.js';
import { testServices } from './term_services.js';

const jpeg = { quality: 95, max_kb: 500 };

termContract('jpeg_size', () => jpegSize.create(jpeg, testServices()));
termContract('image_similarity', () => imageSimilarity.create({ to: 'source', of: null }, testServices()));
termContract('image_similarity to the truth', () => imageSimilarity.create({ to: 'truth', of: 'all' }, testServices()));
termContract('image_similarity of what is changed', () =>
  imageSimilarity.create({ to: 'truth', of: 'changed' }, testServices()),
);

function plain(level: number, width = 32, height = 32): RgbImage {
  return { width, height, data: new Uint8Array(width * height * 3).fill(level) };
}

describe('jpeg_size', () => {
  const sizeOf = async (edited: RgbImage, fields = jpeg): Promise<Outcome & { kind: 'scored' }> => {
    const outcome = await (await jpegSize.create(fields, testServices())).score(wholeItem({ edited }));
    if (outcome.kind !== 'scored') throw new Error(outcome.kind);
    return outcome;
  };

  it('is what is left of max_kb', async () => {
    const { value, normalised, parts } = await sizeOf(imageOf(1), { quality: 95, max_kb: 10 });
    const kb = parts['jpeg_size/kb'];
    expect(kb).toBeGreaterThan(1);
    expect(kb).toBeLessThan(8);
    expect(value).toBeCloseTo(1 - kb / 10, 12);
    expect(normalised).toBe(value);
  });

  it('rises where detail dies out, and falls with the quality of the encoder', async () => {
    expect((await sizeOf(plain(128, 64, 64))).value).toBeGreaterThan((await sizeOf(imageOf(1))).value);
    expect((await sizeOf(imageOf(1), { quality: 30, max_kb: 500 })).value).toBeGreaterThan(
      (await sizeOf(imageOf(1))).value,
    );
  });

  it('is worth no less than nothing, which is what a broken answer is worth', async () => {
    expect(await sizeOf(imageOf(1), { quality: 95, max_kb: 1 })).toMatchObject({ value: 0, normalised: 0 });
  });

  it('is zero by rule for what no JPEG can hold', async () => {
    const term = await jpegSize.create(jpeg, testServices());
    expect(await term.score(wholeItem({ edited: plain(0, 65_501, 1) }))).toMatchObject({ kind: 'zero_by_rule' });
    expect(await term.score(wholeItem({ edited: plain(0, 65_500, 1) }))).toMatchObject({ kind: 'scored' });
  });
});

describe('image_similarity', () => {
  const alike = async (edited: RgbImage, changes: object, to: 'source' | 'truth' = 'source'): Promise<unknown> =>
    (await imageSimilarity.create({ to, of: 'all' }, testServices())).score(wholeItem({ edited, ...changes }));

  it('is 1 - mean |a - b| / 255', async () => {
    const scored = (value: number, part = 'image_similarity/source'): object => {
      return { kind: 'scored', value, normalised: value, parts: { [part]: value } };
    };
    expect(await alike(plain(10), { source: plain(10) })).toEqual(scored(1));
    expect(await alike(plain(0), { source: plain(255) })).toEqual(scored(0));
    expect(await alike(plain(51), { source: plain(0) })).toEqual(scored(0.8));
    expect(await alike(plain(51), { source: plain(51), truth: plain(0) }, 'truth')).toEqual(
      scored(0.8, 'image_similarity/truth'),
    );
  });

  it('compares with the nearest pixel where the sizes differ', async () => {
    expect(await alike(plain(10, 7, 50), { source: plain(10) })).toMatchObject({ value: 1 });
  });

  it('raises for an item that lacks what it compares with', async () => {
    await expect(alike(plain(1), { truth: null }, 'truth')).rejects.toThrow(DataError);
    await expect(alike(plain(1), { source: null })).rejects.toThrow(/source image/);
    expect(await alike(plain(1), { truth: null })).toMatchObject({ kind: 'scored' });
  });
});

describe('image_similarity of what is changed', () => {
  /** An image of 32x32 with a square of 10x10, not quite a tenth of it. */
  const scene = (
    square: number,
    ground = (x: number, y: number): number => ((x + y) % 2 === 0 ? 90 : 110),
  ): RgbImage => {
    const image = plain(0);
    for (let y = 0; y < 32; y++) {
      for (let x = 0; x < 32; x++) {
        image.data.fill(x < 10 && y < 10 ? square : ground(x, y), 3 * (32 * y + x), 3 * (32 * y + x) + 3);
      }
    }
    return image;
  };
  const noise = (x: number, y: number): number => (x * 97 + y * 193 + x * y * 31) % 256;
  const [source, truth] = [scene(20), scene(220)];
  const valueOf = async (edited: RgbImage, of: 'all' | 'changed' | null, changes: object = {}): Promise<number> => {
    const term = await imageSimilarity.create({ to: 'truth', of }, testServices());
    const outcome = await term.score(wholeItem({ edited, source, truth, ...changes }));
    if (outcome.kind !== 'scored') throw new Error(outcome.kind);
    expect(outcome.normalised).toBe(outcome.value);
    return outcome.value;
  };

  // For each answer what it is worth at least and at most, and whether all pixels together call it nearly right.
  it.each([
    ['right', truth, 1, 1, true],
    ['right but for the noise of a codec', scene(218, (x, y) => ((x + y) % 2 === 0 ? 92 : 108)), 0.95, 0.99, true],
    ['the source unchanged', source, 0, 0, true],
    ['the source, a little blurred', scene(22, () => 100), 0, 0.02, true],
    ['half of the way', scene(120), 0.5, 0.5, true],
    ['changed the wrong way', scene(0), 0, 0, true],
    ['right, and the rest wrecked', scene(220, noise), 0, 0.7, false],
    ['right, and the rest painted alike', plain(220), 0, 0.45, false],
    ['right, and the rest black', scene(220, () => 0), 0, 0.55, false],
    ['half of the way, and the rest wrecked', scene(120, noise), 0, 0.35, false],
    ['everything wrecked', scene(20, noise), 0, 0, false],
    ['all gray', plain(128), 0, 0.5, true],
    ['all black', plain(0), 0, 0, false],
    ['all white', plain(255), 0, 0.25, false],
    [
      'right, and moved by two pixels',
      scene(220, (x, y) => (x < 12 && y < 12 ? 220 : (x + y) % 2 === 0 ? 90 : 110)),
      0.9,
      0.99,
      true,
    ],
  ])('%s', async (_what, edited, least, most, looksRight) => {
    const value = await valueOf(edited, 'changed');
    expect(value).toBeGreaterThanOrEqual(least - 1e-9);
    expect(value).toBeLessThanOrEqual(most + 1e-9);
    expect((await valueOf(edited, 'all')) > 0.85).toBe(looksRight);
  });

  it('is the default if there is a source and a labeled result, and all pixels count if there is none', async () => {
    expect(await valueOf(source, null)).toBe(0);
    expect(await valueOf(truth, null)).toBe(1);
    expect(await valueOf(source, null, { source: null })).toBe(await valueOf(source, 'all'));
    const toSource = await imageSimilarity.create({ to: 'source', of: null }, testServices());
    expect(await toSource.score(wholeItem({ edited: source, source, truth }))).toMatchObject({ value: 1 });
    await expect(valueOf(source, 'changed', { source: null })).rejects.toThrow(/compares with the source image/);
  });

  it('asks for the image as it is if nothing is to be changed', async () => {
    expect(await valueOf(source, 'changed', { truth: source })).toBe(1);
    expect(await valueOf(plain(0), 'changed', { truth: source })).toBeCloseTo(
      await valueOf(plain(0), 'all', { truth: source }),
      9,
    );
  });

  it('is the same for an answer of another size', async () => {
    const large = { width: 64, height: 64, data: new Uint8Array(64 * 64 * 3) };
    for (let at = 0; at < 64 * 64; at++) {
      const [x, y] = [(at % 64) >> 1, at >> 7];
      large.data.set(truth.data.subarray(3 * (32 * y + x), 3 * (32 * y + x) + 3), 3 * at);
    }
    expect(await valueOf(large, 'changed')).toBe(1);
  });

  it('goes with the labeled result alone', () => {
    expect(imageSimilarity.conflict?.({ to: 'source', of: 'changed' })).toMatchObject({ field: 'of' });
    expect(imageSimilarity.conflict?.({ to: 'truth', of: 'changed' })).toBeNull();
    expect(imageSimilarity.conflict?.({ to: 'source', of: null })).toBeNull();
  });
});
