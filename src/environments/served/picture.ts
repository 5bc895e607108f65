/** A server's answer to a request for a picture. */
import { EditrlError } from '../../core/errors.js';
import { decodeImage, type RgbImage } from '../../core/image.js';
import { pixelCount } from '../../core/image_text.js';
import type { PictureSize } from '../../schema/images_api.js';

/** A picture from a server. */
export interface ServedPicture {
  readonly picture: RgbImage;
  /** The prompt that it says it has drawn instead of the given one; null if it does not say so. */
  readonly revised: string | null;
}

/** A server's answer: a picture, or its refusal in its own words. */
export type PictureReply = ServedPicture | { readonly refused: string };

/**
 * The picture in a file, or a description of what was there instead. Checks the size in the header first, so that a few kilobytes never become
 * gigabytes of pixels.
 */
export async function pictureIn(bytes: Buffer, { width, height }: PictureSize): Promise<RgbImage | string> {
  const pixels = await pixelCount(bytes.toString('base64'));
  if (pixels !== null && pixels > width * height) {
    return `it answered with a picture of ${pixels} pixels; ${width}x${height} were asked for`;
  }
  try {
    const picture = await decodeImage(bytes, 'the picture', width * height);
    if (picture.width === width && picture.height === height) return picture;
    return `it answered with a picture of ${picture.width}x${picture.height} pixels; ${width}x${height} were asked for`;
  } catch (error) {
    if (!(error instanceof EditrlError)) throw error;
    return `it answered with what is no picture: ${error.message}`;
  }
}

/** The largest reply with a picture: one that does not compress, in base64, plus the surrounding JSON. */
export function mostReplyBytes({ width, height }: PictureSize): number {
  return 2 ** 20 + 6 * width * height;
}

/** A picture without content. */
export function blankPicture({ width, height }: PictureSize): RgbImage {
  return { width, height, data: new Uint8Array(3 * width * height).fill(128) };
}
