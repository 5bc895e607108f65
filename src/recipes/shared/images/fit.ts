/** The size in which an image is edited. */
import { DataError } from '../../../core/errors.js';
import type { RgbImage } from '../../../core/images/image.js';
import { resizeCubic } from '../../../core/images/resize.js';
import { smartSize } from '../../../models/images/processor.js';

export interface Fit {
  /** Both sides are multiples of this, in pixels. */
  readonly side: number;
  /** Maximum number of pixels. Null keeps every image's size. */
  readonly most: number | null;
  /** The setting that is `most`, for messages. */
  readonly key: string;
}

/** An image whose sides are multiples of `side`, with at most `most` pixels. Scales it if `most` is not null, and otherwise raises DataError. */
export function fittedTo(image: RgbImage, { side, most, key }: Fit, path: string, where: string): RgbImage {
  const { width, height } = image;
  const fits = width % side === 0 && height % side === 0;
  if (fits && (most === null || width * height <= most)) return image;
  if (most === null) {
    throw new DataError(`${path}: found ${width}x${height} pixels; allowed: multiples of ${side}`, {
      where,
      next: `Resize the image, or set ${key}, which resizes images to fit.`,
    });
  }
  const size = smartSize(height, width, side, { min_pixels: 1, max_pixels: most });
  return resizeCubic(image, Math.max(side, size.width), Math.max(side, size.height));
}
