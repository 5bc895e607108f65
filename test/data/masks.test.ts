import { join } from 'node:path';
import { writeFileSync } from 'node:fs';
import sharp from 'sharp';
import { describe, expect, it } from 'vitest';
import { readMask, type MaskedPicture } from '../../src/data/masks.js';
import { testFolders } from '../support/folder.js';

const folders = testFolders('masks');

/** A file that is white at these pixels, [x, y], and black elsewhere. */
async function maskOf(width: number, height: number, white: readonly (readonly [number, number])[]): Promise<string> {
  const data = new Uint8Array(width * height);
  for (const [x, y] of white) data[y * width + x] = 255;
  const path = join(folders(), 'mask.png');
  writeFileSync(
    path,
    await sharp(data, { raw: { width, height, channels: 1 } })
      .png()
      .toBuffer(),
  );
  return path;
}

const fitted = (width: number, height: number, side: number): MaskedPicture => ({
  original: { width, height },
  fitted: { width: side, height: side },
  resized: true,
});
const rows = (cells: Uint8Array, columns: number): string[] =>
  Array.from({ length: cells.length / columns }, (_, row) =>
    [...cells.subarray(row * columns, (row + 1) * columns)].join(''),
  );

describe('a mask', () => {
  it('keeps a line that scaling would lose', async () => {
    const line = Array.from({ length: 512 }, (_, x) => [x, 300] as const);
    const cells = await readMask(await maskOf(512, 512, line), 'here', fitted(512, 512, 64), 8);
    // Row 300 of 512 is row 37.5 of 64: in the fifth row of squares of 8.
    expect(rows(cells, 8)).toEqual(Array.from({ length: 8 }, (_, row) => (row === 4 ? '1' : '0').repeat(8)));
  });

  it('is cropped at the middle as its source is', async () => {
    // 16x8 covers 8x8 without scaling; columns 0 to 3 and 12 to 15 are cut off.
    const cells = (...white: (readonly [number, number])[]) =>
      maskOf(16, 8, white).then((path) => readMask(path, 'here', fitted(16, 8, 8), 4));
    expect(rows(await cells([4, 0], [11, 7]), 2)).toEqual(['10', '01']);
    expect(rows(await cells([3, 0], [8, 0], [12, 7]), 2)).toEqual(['01', '00']);
    await expect(cells([3, 0], [12, 7])).rejects.toThrow('the mask has no white, so that nothing may be changed');
  });

  it('is stretched as its source is where pictures are not brought to one size', async () => {
    // 16x8 becomes 8x8: each axis by itself.
    const whole = { ...fitted(16, 8, 8), resized: false };
    const cells = (...white: (readonly [number, number])[]) =>
      maskOf(16, 8, white).then((path) => readMask(path, 'here', whole, 4));
    expect(rows(await cells([0, 0], [15, 7]), 2)).toEqual(['10', '01']);
    expect(rows(await cells([7, 4]), 2)).toEqual(['00', '10']);
  });

  it('marks every square that an enlarged pixel reaches into', async () => {
    // Each pixel of 3x3 becomes 8/3 pixels of 8x8: the middle one covers 2.67 to 5.33.
    const cells = await readMask(await maskOf(3, 3, [[1, 1]]), 'here', fitted(3, 3, 8), 4);
    expect(rows(cells, 2)).toEqual(['11', '11']);
    expect(rows(await readMask(await maskOf(3, 3, [[0, 2]]), 'here', fitted(3, 3, 8), 4), 2)).toEqual(['00', '10']);
  });

  it('is refused with transparent parts, which some programs mean the other way round', async () => {
    const path = join(folders(), 'clear.png');
    const clear = {
      create: { width: 8, height: 8, channels: 4, background: { r: 255, g: 255, b: 255, alpha: 0 } },
    } as const;
    writeFileSync(path, await sharp(clear).png().toBuffer());
    await expect(readMask(path, 'here', fitted(8, 8, 8), 4)).rejects.toThrow('the mask is transparent in places');
  });
});
