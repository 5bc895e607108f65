/** Images as planes of numbers. */
import type { RgbImage } from './image.js';

/** [channels, height, width] of latents or of an image. */
export interface Planes {
  readonly channels: number;
  readonly height: number;
  readonly width: number;
  readonly data: Float32Array;
}

/** A byte as a number from -1 to 1. */
export const toUnit = (byte: number): number => byte / 127.5 - 1;

/** An image as three planes from -1 to 1. */
export function toPlanes({ width, height, data }: RgbImage): Planes {
  const size = width * height;
  const planes = new Float32Array(3 * size);
  for (let at = 0; at < size; at++) {
    for (let c = 0; c < 3; c++) planes[c * size + at] = toUnit(data[3 * at + c]);
  }
  return { channels: 3, width, height, data: planes };
}

/** Planes as an image. Values outside the range are clamped. */
export function toImage({ width, height, data: planes }: Planes): RgbImage {
  const size = width * height;
  const data = Uint8Array.from({ length: 3 * size }, (_, at) =>
    Math.max(0, Math.min(255, Math.round((planes[(at % 3) * size + Math.floor(at / 3)] + 1) * 127.5))),
  );
  return { width, height, data };
}
