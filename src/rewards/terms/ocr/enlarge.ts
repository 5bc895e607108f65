/** Prepares images for text readers: large enough that a stroke is several pixels wide. */
import type { RgbImage } from '../../../core/images/image.js';

/** The long side that text on a small image is enlarged to, in pixels. */
const wantedSide = 768;
/** Enlarging more than this adds no detail to a stroke. */
const MAX_ENLARGEMENT = 4;
/** Larger images are reduced to this side, in pixels, which is enough for any reader. */
const MAX_SIDE = 1536;

/**
 * The factor by which an image is enlarged before reading (below 1: reduced). Small images are enlarged up to four times, because their
 * text is small, too.
 */
export function enlargement(width: number, height: number): number {
  const long = Math.max(width, height);
  if (long > MAX_SIDE) return MAX_SIDE / long;
  return Math.min(MAX_ENLARGEMENT, Math.max(1, Math.ceil(wantedSide / long)));
}

/** Eight-bit gray, rows from the top. */
export interface GrayImage {
  readonly width: number;
  readonly height: number;
  readonly data: Uint8Array;
}

/** The image in gray at the size that `enlargement` gives, smoothed between pixels. */
export async function enlargedGray(image: RgbImage): Promise<GrayImage> {
  const { default: sharp } = await import('sharp');
  const factor = enlargement(image.width, image.height);
  const width = Math.max(1, Math.round(image.width * factor));
  const height = Math.max(1, Math.round(image.height * factor));
  const { data } = await sharp(image.data, { raw: { width: image.width, height: image.height, channels: 3 } })
    .toColourspace('b-w')
    .resize(width, height, { fit: 'fill', kernel: 'cubic' })
    .raw()
    .toBuffer({ resolveWithObject: true });
  return { width, height, data: new Uint8Array(data.buffer, data.byteOffset, data.length) };
}

/** The lightest gray that still counts as outside, as in Calligrapher's reward server. */
const outside = 127;

/** The image with white pixels outside the mask, which is stretched to its size by nearest neighbor. Without a mask, the image itself. */
export function readRegion(image: RgbImage, mask: RgbImage | undefined): RgbImage {
  if (mask === undefined) return image;
  const { width, height } = image;
  const data = Uint8Array.from(image.data);
  for (let y = 0; y < height; y++) {
    const row = Math.floor(((y + 0.5) * mask.height) / height);
    for (let x = 0; x < width; x++) {
      const column = Math.floor(((x + 0.5) * mask.width) / width);
      if (grayAt(mask, column, row) <= outside) data.fill(255, 3 * (y * width + x), 3 * (y * width + x + 1));
    }
  }
  return { width, height, data };
}

/** ITU-R 601-2 luma with Pillow's rounding. */
function grayAt({ data, width }: RgbImage, x: number, y: number): number {
  const at = 3 * (y * width + x);
  return (19595 * data[at] + 38470 * data[at + 1] + 7471 * data[at + 2] + 0x8000) >> 16;
}
