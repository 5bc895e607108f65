import { expect, it, vi } from 'vitest';
import type { RgbImage } from '../../../src/core/image.js';
import { systemClock } from '../../../src/core/clock.js';
import { defaultLimits } from '../../../src/rewards/server/limits.js';
import { ItemScorer } from '../../../src/rewards/server/scorer.js';
import { byPicture, rewardOf } from './served.js';

/** A scorer of pictures that are decoded when the test says so; a picture's text is its size in bytes. */
function scorerOf(): { readonly scorer: ItemScorer; readonly decoding: { readonly what: string; end(): void }[] } {
  const decoding: { readonly what: string; end(): void }[] = [];
  const events = {
    onItem: () => undefined,
    onDefect: (error: unknown) => {
      throw error;
    },
  };
  const images = {
    decodedBytes: (text: string) => Promise.resolve(Number(text)),
    readImage: (text: string, field: string) =>
      new Promise<RgbImage>((resolve) => {
        const end = (): void => resolve({ width: 1, height: 1, data: new Uint8Array(3) });
        decoding.push({ what: `${field} of ${text} bytes`, end });
      }),
  };
  const reward = rewardOf({ a: { weight: 1, score: byPicture('a') } });
  return { scorer: new ItemScorer(reward, defaultLimits, systemClock, events, images), decoding };
}

it('decodes a small item at once beside large ones, which take turns', async () => {
  const { scorer, decoding } = scorerOf();
  const goOn = new AbortController().signal;
  const large = scorer.score(
    ['5000000', '6000000', '7000000'].map((image) => ({ image, source: image })),
    goOn,
  );
  await vi.waitUntil(() => decoding.length === 1);
  const small = scorer.score([{ image: '3000' }], goOn);
  await vi.waitUntil(() => decoding.length === 2);
  decoding[1].end();
  expect((await small).map(({ outcome }) => outcome.kind)).toEqual(['scored']);
  for (let i = 0; i < 6; i++) {
    await vi.waitUntil(() => decoding.length === (i === 0 ? 2 : i + 2));
    decoding[i === 0 ? 0 : i + 1].end();
  }
  expect((await large).map(({ outcome }) => outcome.kind)).toEqual(['scored', 'scored', 'scored']);
  expect(decoding.map(({ what }) => what)).toEqual([
    'source of 5000000 bytes',
    'image of 3000 bytes',
    'image of 5000000 bytes',
    'source of 6000000 bytes',
    'image of 6000000 bytes',
    'source of 7000000 bytes',
    'image of 7000000 bytes',
  ]);
});

it('decodes nothing more for a client that went away', async () => {
  const { scorer, decoding } = scorerOf();
  const controller = new AbortController();
  const large = scorer.score([{ image: '5000000' }, { image: '6000000' }], controller.signal);
  await vi.waitUntil(() => decoding.length === 1);
  controller.abort();
  decoding[0].end();
  expect((await large).map(({ outcome }) => outcome.reason)).toEqual(['aborted', 'aborted']);
  expect(decoding).toHaveLength(1);
});
