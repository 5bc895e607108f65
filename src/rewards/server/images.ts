/** The images of a request: base64 to pixels, bounded before anything is unpacked. No address is opened, no file read. */
import { DataError } from '../../core/errors.js';
import type { RgbImage } from '../../core/image.js';
import { decodeImage } from '../../core/image.js';
import { pixelCount } from '../../core/image_header.js';

/** Raises DataError, naming the field, for a text that is not an image of at most `maxPixels` pixels. */
export async function readImage(text: string, field: string, maxPixels: number): Promise<RgbImage> {
  return decodeImage(base64Bytes(text, field), field, maxPixels);
}

/** What `readImage` will take in memory, by the image's header: three bytes a pixel, and nothing for what it will refuse. */
export async function decodedBytes(text: string, maxPixels: number): Promise<number> {
  const pixels = await pixelCount(text.slice(text.indexOf(',') + 1));
  return pixels === null || pixels > maxPixels ? 0 : 3 * pixels;
}

function base64Bytes(text: string, field: string): Buffer {
  const encoded = text.startsWith('data:') ? afterComma(text, field) : text;
  const compact = /\s/.test(encoded) ? encoded.replace(/\s+/g, '') : encoded;
  const bytes = Buffer.from(compact, 'base64');
  // Node skips what is no base64; then there are fewer bytes than the text has room for.
  const digits = compact.length - (compact.endsWith('==') ? 2 : compact.endsWith('=') ? 1 : 0);
  if (digits > 0 && bytes.length === Math.floor((digits * 3) / 4)) return bytes;
  throw new DataError('this is neither base64 nor a data: URL that holds base64; addresses and paths are not opened', {
    where: field,
  });
}

function afterComma(url: string, field: string): string {
  const comma = url.indexOf(',');
  if (comma > 0 && url.slice(0, comma).toLowerCase().endsWith(';base64')) return url.slice(comma + 1);
  throw new DataError("a data: URL has to hold base64, such as 'data:image/png;base64,...'", { where: field });
}
