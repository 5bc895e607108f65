/** A user's own images: their bytes, their sizes, and for datasets, upright and with one size. */
import { closeSync, openSync, readFileSync, readSync } from 'node:fs';
import { DataError } from '../core/errors.js';
import { coverImage, decodeImage, type RgbImage } from '../core/images/image.js';
import { pngSize } from '../core/images/png.js';

export interface ImageSize {
  readonly width: number;
  readonly height: number;
}

export interface FittedImage {
  readonly image: RgbImage;
  /** Its size before it was fitted. */
  readonly original: ImageSize;
}

/** The bytes of an image. Raises DataError with `where`, the line that names it. */
export function imageBytes(path: string, where: string): Uint8Array {
  try {
    return readFileSync(path);
  } catch (cause) {
    const code = (cause as NodeJS.ErrnoException).code ?? String(cause);
    throw new DataError(`cannot read ${path} (${code})`, { where, cause });
  }
}

/** The bytes at the beginning of a file with a PNG's size. */
const HEADER_BYTES = 24;

/** The size in a PNG's header. Null for other formats. Raises DataError for a file that cannot be read or is empty. */
export function headerSize(path: string): ImageSize | null {
  const header = Buffer.alloc(HEADER_BYTES);
  let read: number;
  try {
    const file = openSync(path, 'r');
    try {
      read = readSync(file, header, 0, HEADER_BYTES, 0);
    } finally {
      closeSync(file);
    }
  } catch (cause) {
    const code = (cause as NodeJS.ErrnoException).code ?? String(cause);
    throw new DataError(`cannot be read (${code})`, { where: path, cause });
  }
  if (read < HEADER_BYTES) throw new DataError(`is not an image: it has ${read} bytes`, { where: path });
  return pngSize(header);
}

/** Reads an image, scaled and center-cropped to `size`, or unchanged if `size` is null. Raises DataError with `where`. */
export async function readFitted(path: string, where: string, size: ImageSize | null): Promise<FittedImage> {
  const bytes = imageBytes(path, where);
  try {
    const original = await decodeImage(bytes, path);
    const fits = size === null || sameSize(original, size);
    const image = fits ? original : await coverImage(original, size.width, size.height);
    return { image, original: { width: original.width, height: original.height } };
  } catch (cause) {
    if (!(cause instanceof DataError)) throw cause;
    const next = cause.next ?? 'Save it again as PNG or JPEG.';
    throw new DataError(`${path}: ${cause.message}`, { where, next, cause });
  }
}

/** Shapes that differ by less than this share are one: rounding to whole pixels makes such a difference. */
const SHAPE_TOLERANCE = 0.02;

export function sameSize(a: ImageSize, b: ImageSize): boolean {
  return a.width === b.width && a.height === b.height;
}

export function sameShape(a: ImageSize, b: ImageSize): boolean {
  return Math.abs((a.width / a.height) * (b.height / b.width) - 1) <= SHAPE_TOLERANCE;
}

export function sizeText({ width, height }: ImageSize): string {
  return `${width}x${height}`;
}
