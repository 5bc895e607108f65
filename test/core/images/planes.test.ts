import { describe, expect, it } from 'vitest';
import type { RgbImage } from '../../../src/core/images/image.js';
import { toImage, toPlanes } from '../../../src/core/images/planes.js';

const image = (width: number, height: number, at: (x: number, y: number, c: number) => number): RgbImage => ({
  width,
  height,
  data: Uint8Array.from({ length: width * height * 3 }, (_, i) =>
    at(Math.floor(i / 3) % width, Math.floor(i / 3 / width), i % 3),
  ),
});

describe('toPlanes', () => {
  it('is undone by toImage', () => {
    const picture = image(5, 3, (x, y, c) => (x * 37 + y * 11 + c * 90) % 256);
    expect(toImage(toPlanes(picture))).toEqual(picture);
  });

  it('is cut off at black and white', () => {
    const { data } = toImage({ channels: 3, width: 1, height: 1, data: Float32Array.of(-3, 0, 2) });
    expect([...data]).toEqual([0, 128, 255]);
  });
});
