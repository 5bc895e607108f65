import { describe, expect, it } from 'vitest';
import { DataError } from '../../../src/core/errors.js';
import type { RgbImage } from '../../../src/core/image.js';
import type { Outcome } from '../../../src/rewards/score/types.js';
import { imageSimilarity } from '../../../src/rewards/terms/image_similarity.js';
import { jpegSize } from '../../../src/rewards/terms/jpeg_size.js';
import { pictureOf, termContract, wholeItem } from './term_contract.js';
import { testServices } from './term_services.js';

const jpeg = { quality: 95, max_kb: 500 };

termContract('jpeg_size', () => jpegSize.create(jpeg, testServices()));
termContract('image_similarity', () => imageSimilarity.create({ to: 'source' }, testServices()));
termContract('image_similarity to the truth', () => imageSimilarity.create({ to: 'truth' }, testServices()));

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
    const { value, normalised, parts } = await sizeOf(pictureOf(1), { quality: 95, max_kb: 10 });
    const kb = parts['jpeg_size/kb'];
    expect(kb).toBeGreaterThan(1);
    expect(kb).toBeLessThan(8);
    expect(value).toBeCloseTo(1 - kb / 10, 12);
    expect(normalised).toBe(value);
  });

  it('rises where detail dies out, and falls with the quality of the encoder', async () => {
    expect((await sizeOf(plain(128, 64, 64))).value).toBeGreaterThan((await sizeOf(pictureOf(1))).value);
    expect((await sizeOf(pictureOf(1), { quality: 30, max_kb: 500 })).value).toBeGreaterThan(
      (await sizeOf(pictureOf(1))).value,
    );
  });

  it('is worth no less than nothing, which is what a broken answer is worth', async () => {
    expect(await sizeOf(pictureOf(1), { quality: 95, max_kb: 1 })).toMatchObject({ value: 0, normalised: 0 });
  });

  it('is zero by rule for what no JPEG can hold', async () => {
    const term = await jpegSize.create(jpeg, testServices());
    expect(await term.score(wholeItem({ edited: plain(0, 65_501, 1) }))).toMatchObject({ kind: 'zero_by_rule' });
    expect(await term.score(wholeItem({ edited: plain(0, 65_500, 1) }))).toMatchObject({ kind: 'scored' });
  });
});

describe('image_similarity', () => {
  const alike = async (edited: RgbImage, changes: object, to: 'source' | 'truth' = 'source'): Promise<unknown> =>
    (await imageSimilarity.create({ to }, testServices())).score(wholeItem({ edited, ...changes }));

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
