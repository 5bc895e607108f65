/** RGB images in memory and as files. sharp (libvips) encodes and decodes them. */
import { createHash } from 'node:crypto';
import sharp from 'sharp';
import { DataError } from '../errors.js';
import {
  decodePlainPng,
  encodePlainPng,
  encodePlainPngAside,
  encodeSentPng,
  MAX_PIXELS,
  type RgbImage,
} from './png.js';
import { refuseLfsPointer } from '../text.js';

export type { RgbImage };

/** Up to this many pixels, another thread costs more than it saves. */
const FEW_PIXELS = 64 * 64;

/** Encodes as PNG. The same pixels always give the same bytes. */
export async function encodePng(image: RgbImage): Promise<Uint8Array> {
  const pixels = image.width * image.height;
  if (pixels <= FEW_PIXELS) return encodePlainPng(image);
  if (pixels <= MAX_PIXELS) return encodePlainPngAside(image);
  return sharp(image.data, { raw: { width: image.width, height: image.height, channels: 3 } })
    .png({ compressionLevel: 6, adaptiveFiltering: false })
    .toBuffer();
}

const ids = new WeakMap<RgbImage, string>();

/** Identifies an image: hexadecimal SHA-256 of its size and pixels. Computed once per image. */
export function imageId(image: RgbImage): string {
  const { width, height, data } = image;
  const id = ids.get(image) ?? createHash('sha256').update(`${width}x${height}:`).update(data).digest('hex');
  ids.set(image, id);
  return id;
}

const sent = new WeakMap<RgbImage, Promise<Uint8Array>>();

/** An image as PNG for requests, where time counts more than bytes. Encoded once per image, and the same pixels always give the same bytes. */
export function pngToSend(image: RgbImage): Promise<Uint8Array> {
  const isSmall = image.width * image.height <= FEW_PIXELS;
  const png = sent.get(image) ?? (isSmall ? Promise.resolve(encodePlainPng(image)) : encodeSentPng(image));
  sent.set(image, png);
  return png;
}

/** Enlarges the image by a whole factor: every pixel becomes a square of its color. */
export function enlargeImage(image: RgbImage, factor: number): RgbImage {
  const [width, height] = [image.width * factor, image.height * factor];
  const data = new Uint8Array(width * height * 3);
  const row = width * 3;
  let to = 0;
  for (let y = 0, from = 0; y < image.height; y++) {
    for (let x = 0; x < image.width; x++, from += 3) {
      for (let n = 0; n < factor; n++, to += 3) {
        data[to] = image.data[from];
        data[to + 1] = image.data[from + 1];
        data[to + 2] = image.data[from + 2];
      }
    }
    // Repeats the row that was just written.
    for (let n = 1; n < factor; n++, to += row) data.copyWithin(to, to - row, to);
  }
  return { width, height, data };
}

/** Shrinks the image to this size (Lanczos, three lobes). Callers keep the aspect ratio. */
export async function shrinkImage(image: RgbImage, width: number, height: number): Promise<RgbImage> {
  const { data } = await sharp(image.data, { raw: { width: image.width, height: image.height, channels: 3 } })
    .resize(width, height, { fit: 'fill', kernel: 'lanczos3' })
    .raw()
    .toBuffer({ resolveWithObject: true });
  return { width, height, data: new Uint8Array(data.buffer, data.byteOffset, data.length) };
}

/** Scales the image to cover the size and crops it at the center (Lanczos, three lobes). */
export async function coverImage(image: RgbImage, width: number, height: number): Promise<RgbImage> {
  const { data } = await sharp(image.data, { raw: { width: image.width, height: image.height, channels: 3 } })
    .resize(width, height, { fit: 'cover', position: 'centre', kernel: 'lanczos3' })
    .raw()
    .toBuffer({ resolveWithObject: true });
  return { width, height, data: new Uint8Array(data.buffer, data.byteOffset, data.length) };
}

/** Images with more pixels are not decoded: 64 million take 192 MB, and a file of a few kilobytes can claim any number. */
export const mostImagePixels = 64_000_000;

/**
 * The first bytes of the supported formats (PNG, JPEG, WebP). Null matches any byte. Other formats of libvips, such as SVG, are more
 * than images and are rejected.
 */
const signatures = {
  png: [0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a],
  jpg: [0xff, 0xd8, 0xff],
  webp: [0x52, 0x49, 0x46, 0x46, null, null, null, null, 0x57, 0x45, 0x42, 0x50],
} as const satisfies Readonly<Record<string, readonly (number | null)[]>>;

/** Supported formats by file extension. */
export type ImageFormat = keyof typeof signatures;

/** The format of an image by its first bytes. Null if it is not supported. */
export function imageFormat(bytes: Uint8Array): ImageFormat | null {
  const formats = Object.keys(signatures) as ImageFormat[];
  return formats.find((one) => signatures[one].every((byte, i) => byte === null || bytes[i] === byte)) ?? null;
}

/**
 * Decodes PNG, JPEG or WebP bytes and applies the EXIF orientation. As in Pillow's `convert('RGB')`, which models were trained with,
 * transparency is dropped and CMYK is converted without color profiles. `where` names the source in errors. Raises DataError for other
 * bytes, for a broken or truncated file, and for more than `maxPixels` pixels before decoding.
 */
export async function decodeImage(bytes: Uint8Array, where: string, maxPixels = mostImagePixels): Promise<RgbImage> {
  const plain = decodePlainPng(bytes);
  if (plain !== null && plain.width * plain.height <= maxPixels) return plain;
  if (imageFormat(bytes) === null) {
    refuseLfsPointer(bytes, where);
    throw new DataError('cannot decode the image: not a PNG, JPEG or WebP file', { where });
  }
  try {
    const image = sharp(bytes, { limitInputPixels: maxPixels, autoOrient: true });
    const isCmyk = (await image.metadata()).space === 'cmyk';
    const converted = isCmyk
      ? image.pipelineColourspace('cmyk').toColourspace('cmyk')
      : image.removeAlpha().toColourspace('srgb');
    const { data, info } = await converted.raw().toBuffer({ resolveWithObject: true });
    if (isCmyk && info.channels === 4) return { width: info.width, height: info.height, data: rgbOfCmyk(data) };
    if (info.channels !== 3) throw new Error(`${info.channels} channels`);
    return { width: info.width, height: info.height, data: new Uint8Array(data.buffer, data.byteOffset, data.length) };
  } catch (cause) {
    const size = await imageSize(bytes);
    if (size !== null && size.width * size.height > maxPixels) {
      throw new DataError(
        `the image is ${size.width}x${size.height} pixels, more than the ${maxPixels} that are decoded`,
        { where, next: 'Make the image smaller.', cause },
      );
    }
    throw new DataError(`cannot decode the image (${cause instanceof Error ? cause.message : String(cause)})`, {
      where,
      cause,
    });
  }
}

/** Applies each ink's share to what black leaves, rounded as in Pillow. */
function rgbOfCmyk(inks: Uint8Array): Uint8Array {
  const out = new Uint8Array((inks.length / 4) * 3);
  for (let from = 0, to = 0; from < inks.length; from += 4) {
    const light = 255 - inks[from + 3];
    for (let ink = 0; ink < 3; ink++, to++) {
      const product = inks[from + ink] * light + 128;
      out[to] = light - ((product + (product >> 8)) >> 8);
    }
  }
  return out;
}

/** The size in the header of a file, by its path or its bytes, before rotation. Null if it cannot be read. */
export async function imageSize(file: Uint8Array | string): Promise<{ width: number; height: number } | null> {
  try {
    return await sharp(file, { limitInputPixels: false }).metadata();
  } catch {
    return null;
  }
}

/** Hexadecimal SHA-256. */
export function sha256(bytes: Uint8Array | string): string {
  return createHash('sha256').update(bytes).digest('hex');
}
