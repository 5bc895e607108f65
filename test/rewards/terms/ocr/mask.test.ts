import { describe, expect, it } from 'vitest';
import type { RgbImage } from '../../../../src/core/images/image.js';
import { readRegion } from '../../../../src/rewards/terms/ocr/enlarge.js';

/** Gray pixels by value. */
function gray(width: number, height: number, values: readonly number[]): RgbImage {
  return { width, height, data: Uint8Array.from(values.flatMap((value) => [value, value, value])) };
}

describe('readRegion', () => {
  const image = gray(4, 1, [10, 20, 30, 40]);

  it('keeps the image itself without a mask', () => {
    expect(readRegion(image, undefined)).toBe(image);
  });

  it('paints white where the mask is at most 127', () => {
    expect(readRegion(image, gray(4, 1, [0, 127, 128, 255]))).toEqual(gray(4, 1, [255, 255, 30, 40]));
    expect(image).toEqual(gray(4, 1, [10, 20, 30, 40]));
  });

  it('stretches a mask of another size as PIL.Image.NEAREST does', () => {
    expect(readRegion(image, gray(2, 1, [0, 255]))).toEqual(gray(4, 1, [255, 255, 30, 40]));
    // Of eight columns, Pillow takes 1, 3, 5 and 7.
    expect(readRegion(image, gray(8, 2, [0, 255, 0, 0, 0, 255, 0, 0, 0, 255, 0, 0, 0, 255, 0, 0]))).toEqual(
      gray(4, 1, [10, 255, 30, 255]),
    );
  });

  it("takes a colored mask's luma: of the pure colors only green is light enough", () => {
    const colors: RgbImage = { width: 4, height: 1, data: Uint8Array.of(255, 0, 0, 0, 255, 0, 0, 0, 255, 255, 255, 0) };
    expect(readRegion(image, colors)).toEqual(gray(4, 1, [255, 20, 255, 40]));
  });
});
