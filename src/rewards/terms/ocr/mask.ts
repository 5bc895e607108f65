/** The part of an image that text is read from. */
import type { RgbImage } from '../../../core/image.js';

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
