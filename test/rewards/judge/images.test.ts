import { describe, expect, it } from 'vitest';
import { DataError } from '../../../src/core/errors.js';
import { decodeImage } from '../../../src/core/images/image.js';
import { isShowable, judgeImage, type JudgeImage } from '../../../src/rewards/judge/images.js';

function plain(width: number, height: number, level = 90) {
  return { width, height, data: new Uint8Array(width * height * 3).fill(level) };
}

async function sizeOf(image: JudgeImage): Promise<string> {
  const url = await image.dataUrl();
  expect(url.startsWith('data:image/png;base64,')).toBe(true);
  const { width, height } = await decodeImage(Buffer.from(url.slice(url.indexOf(',') + 1), 'base64'), 'test');
  return `${width}x${height}`;
}

describe('images for a judge', () => {
  it.each([
    [28, 28, '28x28'],
    [1024, 1024, '1024x1024'],
    // Small ones are enlarged by a whole factor.
    [27, 27, '54x54'],
    [1, 1, '28x28'],
    [10, 300, '30x900'],
    [8, 8, '32x32'],
    // Large ones are shrunk in proportion, the short side to no less than 28 pixels.
    [2048, 1024, '1024x512'],
    [1025, 1025, '1024x1024'],
    [30, 3000, '28x2800'],
    [28, 5599, '28x5599'],
    [1, 199, '28x5572'],
  ])('%sx%s are shown as %s', async (width, height, shown) => {
    expect(await sizeOf(judgeImage(plain(width, height), 'test'))).toBe(shown);
  });

  it.each([
    [1, 200],
    [200, 1],
    [10_000, 1],
    [28, 5600],
    [0, 0],
    [0, 5],
  ])('%sx%s are not shown', (width, height) => {
    expect(isShowable(plain(width, height))).toBe(false);
    expect(() => judgeImage(plain(width, height), 'the source')).toThrow(DataError);
    expect(() => judgeImage(plain(width, height), 'the source')).toThrow(`${width}x${height}`);
  });

  it('are named by their pixels and by the size in which they are shown', () => {
    const digest = (width: number, height: number, level = 90): string =>
      judgeImage(plain(width, height, level), '').id;
    expect(digest(64, 64)).toBe(digest(64, 64));
    expect(digest(64, 64)).toMatch(/^[0-9a-f]{64}$/);
    const all = [digest(64, 64), digest(64, 64, 91), digest(32, 128), digest(8, 8), digest(2000, 2000)];
    expect(new Set(all).size).toBe(5);
  });

  it('are encoded once, however often they are sent', async () => {
    const first = judgeImage(plain(64, 64), '').dataUrl();
    const second = judgeImage(plain(64, 64), '').dataUrl();
    expect(await first).toBe(await second);
  });
});
