/** RGB images in memory and as PNG files. sharp (libvips) does the coding: prebuilt for every platform, and later work needs its resizing. */
import { createHash } from 'node:crypto';
import sharp from 'sharp';
import { DataError } from './errors.js';
import { decodePlainPng, encodePlainPng, MOST_PIXELS } from './png.js';

/** Eight-bit RGB, rows from the top, axes [height, width, 3]. */
export interface RgbImage {
  readonly width: number;
  readonly height: number;
  readonly data: Uint8Array;
}

/** Encodes as PNG; the same pixels always give the same bytes. */
export async function encodePng(image: RgbImage): Promise<Uint8Array> {
  if (image.width * image.height <= MOST_PIXELS) return encodePlainPng(image);
  return sharp(image.data, { raw: { width: image.width, height: image.height, channels: 3 } })
    .png({ compressionLevel: 6, adaptiveFiltering: false })
    .toBuffer();
}

/** Decodes PNG, JPEG or WebP bytes; transparency is flattened on white. `where` names the source in an error. */
export async function decodeImage(bytes: Uint8Array, where: string): Promise<RgbImage> {
  const plain = decodePlainPng(bytes);
  if (plain !== null) return plain;
  try {
    const { data, info } = await sharp(bytes, { limitInputPixels: 64_000_000 })
      .flatten({ background: '#ffffff' })
      .toColourspace('srgb')
      .raw()
      .toBuffer({ resolveWithObject: true });
    if (info.channels !== 3) throw new Error(`${info.channels} channels`);
    return { width: info.width, height: info.height, data: new Uint8Array(data.buffer, data.byteOffset, data.length) };
  } catch (cause) {
    throw new DataError(`cannot decode the image (${cause instanceof Error ? cause.message : String(cause)})`, {
      where,
      cause,
    });
  }
}

/** SHA-256 of some bytes, in hexadecimal. */
export function sha256(bytes: Uint8Array | string): string {
  return createHash('sha256').update(bytes).digest('hex');
}
