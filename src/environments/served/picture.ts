/** What a server makes of a request for a picture. */
import { EditrlError } from '../../core/errors.js';
import { decodeImage, type RgbImage } from '../../core/image.js';
import { pixelCount } from '../../core/image_text.js';
import type { PictureSize } from '../../schema/images_api.js';

/** A picture as a server made it. */
export interface ServedPicture {
  readonly picture: RgbImage;
  /** The prompt that it says it has drawn in place of the one that it was given; null where it says nothing of the kind. */
  readonly revised: string | null;
}

/** What a server makes of a request: a picture, or its refusal of what it was to draw, in its words. */
export type Answered = ServedPicture | { readonly refused: string };

/**
 * The picture in a file, or what was found in its place, in words. Looks at the size in the header first, so that a few kilobytes never become
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

/** The bytes that a reply with a picture may have at most: one that does not compress, in base64, and what goes around it. */
export function mostReplyBytes({ width, height }: PictureSize): number {
  return 2 ** 20 + 6 * width * height;
}

/** A picture that shows nothing. */
export function blank({ width, height }: PictureSize): RgbImage {
  return { width, height, data: new Uint8Array(3 * width * height).fill(128) };
}
