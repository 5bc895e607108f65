/** Images of requests. In a file of its own, so that tests can observe when images are decoded. */
import { DataError } from '../../core/errors.js';
import { type RgbImage, decodeImage } from '../../core/images/image.js';
import { base64Bytes, dataUrlContent, pixelCount } from '../../core/images/image_text.js';

/** Raises DataError, naming the field, for a text that is not an image of at most `maxPixels` pixels. */
export async function readImage(text: string, field: string, maxPixels: number): Promise<RgbImage> {
  return decodeImage(bytesOf(text, field), field, maxPixels);
}

/** Memory that `readImage` takes, from the image's header: three bytes per pixel, and 0 for an image that it rejects. */
export async function decodedBytes(text: string, maxPixels: number): Promise<number> {
  const pixels = await pixelCount(text.slice(text.indexOf(',') + 1));
  return pixels === null || pixels > maxPixels ? 0 : 3 * pixels;
}

/** Accepts base64 with line breaks and without padding, as some programs write it. */
function bytesOf(text: string, field: string): Buffer {
  const encoded = text.startsWith('data:') ? dataUrlContent(text) : text;
  if (encoded === null) {
    throw new DataError("a data: URL must contain base64, such as 'data:image/png;base64,...'", { where: field });
  }
  const compact = encoded.replace(/\s+/g, '');
  const bytes = base64Bytes(compact.padEnd(Math.ceil(compact.length / 4) * 4, '='));
  if (bytes !== null && bytes.length > 0) return bytes;
  throw new DataError('this is neither base64 nor a data: URL with base64; addresses and paths are not opened', {
    where: field,
  });
}
