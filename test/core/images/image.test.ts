import { crc32, deflateSync } from 'node:zlib';
import sharp from 'sharp';
import { describe, expect, it } from 'vitest';
import { RandomStream } from '../../../src/core/random.js';
import { decodeImage, encodePng, pngToSend, enlargeImage, shrinkImage } from '../../../src/core/images/image.js';

function chunk(type: string, body: Uint8Array): Buffer {
  const tagged = Buffer.concat([Buffer.from(type, 'latin1'), body]);
  const size = Buffer.alloc(4);
  size.writeUInt32BE(body.length);
  const sum = Buffer.alloc(4);
  sum.writeUInt32BE(crc32(tagged));
  return Buffer.concat([size, tagged, sum]);
}

/** A PNG of a few hundred bytes that claims any size: its rows are zeros, or missing. */
function bomb(width: number, height: number, rows = 64): Buffer {
  const header = Buffer.alloc(13);
  header.writeUInt32BE(width, 0);
  header.writeUInt32BE(height, 4);
  header.set([8, 2, 0, 0, 0], 8);
  const data = deflateSync(Buffer.alloc(rows * (width * 3 + 1)));
  const signature = Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a]);
  return Buffer.concat([signature, chunk('IHDR', header), chunk('IDAT', data), chunk('IEND', Buffer.alloc(0))]);
}

const picture = { width: 3, height: 2, data: Uint8Array.from({ length: 18 }, (_, i) => i * 14) };

describe('pngToSend', () => {
  it.each([
    [3, 2],
    [80, 60],
    [401, 123],
  ])(
    'gives every pixel of an image of %dx%d back, here and elsewhere, and the same bytes again',
    async (width, height) => {
      const random = new RandomStream('sent', width);
      const data = Uint8Array.from({ length: width * height * 3 }, (_, i) =>
        i % 7 === 0 ? random.integer(256) : i % 251,
      );
      const sent = await pngToSend({ width, height, data });
      expect(await decodeImage(sent, 'here')).toEqual({ width, height, data });
      const { data: raw, info } = await sharp(sent).removeAlpha().raw().toBuffer({ resolveWithObject: true });
      expect(info).toMatchObject({ width, height, channels: 3 });
      expect(new Uint8Array(raw)).toEqual(data);
      expect(await pngToSend({ width, height, data })).toEqual(sent);
    },
  );
});

describe('decodeImage', () => {
  it.each<readonly [string, Uint8Array]>([
    ['a PNG of 900 million pixels', bomb(30_000, 30_000, 1)],
    ['a PNG as wide as PNG allows', bomb(2_147_483_647, 1, 0)],
    ['a PNG of 8001x8000', bomb(8001, 8000, 1)],
  ])('rejects %s before it unpacks it', async (_name, bytes) => {
    await expect(decodeImage(bytes, 'here')).rejects.toMatchObject({
      code: 'data',
      where: 'here',
      message: expect.stringMatching(/\d+x\d+ pixels, more than the 64000000 that are decoded|cannot decode/) as string,
    });
  });

  it('takes a lower limit, for small and for large images', async () => {
    const small = await encodePng(picture);
    await expect(decodeImage(small, 'here', 5)).rejects.toThrow('3x2 pixels, more than the 5');
    expect(await decodeImage(small, 'here', 6)).toEqual(picture);
    const jpeg = await sharp(Buffer.alloc(400 * 300 * 3), { raw: { width: 400, height: 300, channels: 3 } })
      .jpeg()
      .toBuffer();
    await expect(decodeImage(jpeg, 'here', 119_999)).rejects.toThrow('400x300 pixels');
    expect(await decodeImage(jpeg, 'here', 120_000)).toMatchObject({ width: 400, height: 300 });
  });

  it.each<readonly [string, Uint8Array]>([
    ['nothing', Buffer.alloc(0)],
    ['words', Buffer.from('not an image')],
    ['an SVG', Buffer.from('<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"><rect/></svg>')],
    ['a GIF', Buffer.from('R0lGODlhAQABAAAAACwAAAAAAQABAAAC', 'base64')],
    ['the start of a PNG', bomb(64, 64).subarray(0, 40)],
    ['a PNG without all of its rows', bomb(300, 300, 100)],
    ['the start of a JPEG', Buffer.from([0xff, 0xd8, 0xff, 0xe0, 0, 16])],
    ['the start of a WebP', Buffer.from('RIFF\u0010\u0000\u0000\u0000WEBPVP8 ', 'latin1')],
  ])('rejects %s', async (_name, bytes) => {
    await expect(decodeImage(bytes, 'here')).rejects.toMatchObject({ code: 'data', where: 'here' });
  });
});

describe('a photograph', () => {
  /** Four colors in the corners of 40x20 pixels. */
  const corners = Buffer.alloc(40 * 20 * 3);
  for (let y = 0; y < 20; y++) {
    for (let x = 0; x < 40; x++) corners.set([x < 20 ? 220 : 30, y < 10 ? 220 : 30, 30], (y * 40 + x) * 3);
  }
  const plain = () => sharp(corners, { raw: { width: 40, height: 20, channels: 3 } });
  const at = ({ data, width }: { data: Uint8Array; width: number }, x: number, y: number) =>
    [...data.subarray((y * width + x) * 3, (y * width + x) * 3 + 2)].map((level) => level > 128);

  it.each(['jpeg', 'webp', 'png'] as const)('is decoded upright: %s', async (format) => {
    const turned = await plain().withMetadata({ orientation: 6 }).toFormat(format).toBuffer();
    const image = await decodeImage(turned, 'here');
    expect([image.width, image.height]).toEqual([20, 40]);
    // What was on top at the left is on top at the right.
    expect([at(image, 16, 4), at(image, 4, 4)]).toEqual([
      [true, true],
      [true, false],
    ]);
  });

  it.each(['jpeg', 'webp', 'png'] as const)('without a mark keeps every pixel: %s', async (format) => {
    for (const bytes of [
      await plain().toFormat(format).toBuffer(),
      await plain().withMetadata({ orientation: 1 }).toFormat(format).toBuffer(),
      await plain()
        .ensureAlpha(0.5)
        .toFormat(format === 'jpeg' ? 'png' : format)
        .toBuffer(),
    ]) {
      const before = await sharp(bytes).removeAlpha().toColourspace('srgb').raw().toBuffer();
      expect(Buffer.from((await decodeImage(bytes, 'here')).data).equals(before)).toBe(true);
    }
  });
});

describe('sizes', () => {
  it('are multiplied pixel by pixel', () => {
    const large = enlargeImage(picture, 3);
    expect([large.width, large.height, large.data.length]).toEqual([9, 6, 162]);
    for (let y = 0; y < 6; y++) {
      for (let x = 0; x < 9; x++) {
        const from = (Math.floor(y / 3) * 3 + Math.floor(x / 3)) * 3;
        expect([...large.data.subarray((y * 9 + x) * 3, (y * 9 + x) * 3 + 3)]).toEqual([
          ...picture.data.subarray(from, from + 3),
        ]);
      }
    }
  });

  it('are reduced to what is asked, colors kept', async () => {
    const plain = { width: 100, height: 60, data: new Uint8Array(100 * 60 * 3).fill(77) };
    const small = await shrinkImage(plain, 50, 30);
    expect([small.width, small.height, small.data.length]).toEqual([50, 30, 4500]);
    expect(new Set(small.data)).toEqual(new Set([77]));
  });
});

it('names a Git LFS pointer in the place of an image', async () => {
  const pointer = Buffer.from('version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12\n');
  await expect(decodeImage(pointer, 'a.png')).rejects.toThrow(/Git LFS pointer/);
});
describe("pixels of Pillow's convert('RGB')", () => {
  it.each(['png', 'webp'] as const)('have their colors, however transparent they are: %s', async (format) => {
    const rgba = Uint8Array.from([10, 20, 30, 0, 40, 50, 60, 128, 70, 80, 90, 255]);
    const drawn = sharp(rgba, { raw: { width: 3, height: 1, channels: 4 } });
    const file = format === 'png' ? drawn.png() : drawn.webp({ lossless: true, exact: true });
    const { data } = await decodeImage(await file.toBuffer(), 'here');
    expect([...data]).toEqual([10, 20, 30, 40, 50, 60, 70, 80, 90]);
  });

  it('are the light that the inks of CMYK leave', async () => {
    const { width, height, data } = await decodeImage(Buffer.from(CMYK, 'base64'), 'here');
    expect([width, height, [...data.subarray(0, 3)]]).toEqual([8, 8, [42, 119, 172]]);
  });
});

/** A JPEG of one color that Pillow saved. */
const CMYK =
  '/9j/7gAOQWRvYmUAZAAAAAAA/9sAQwACAQEBAQECAQEBAgICAgIEAwICAgIFBAQDBAYFBgYGBQYGBgcJCAYHCQcGBggLCAkKCgoKCgYICwwLCgwJCgoK/8AAFAgACAAIBEMRAE0RAFkRAEsRAP/EABUAAQEAAAAAAAAAAAAAAAAAAAkH/8QAFBABAAAAAAAAAAAAAAAAAAAAAP/aAA4EQwBNAFkASwAAPwA21sMIQx//2Q==';
