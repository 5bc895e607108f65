/** Images as PaddleOCR's networks take them: blue first, [1, 3, height, width], normalised, at sizes that the networks accept. */
import type { RgbImage } from '../../../../core/image.js';
import { enlargement } from '../enlarge.js';
import type { Box, Size } from './boxes.js';

/** The detector's sides are multiples of this. */
const STRIDE = 32;
/** The recogniser's height, and the width that shorter lines are filled up to; pixels. */
export const LINE_HEIGHT = 48;
const LINE_WIDTH = 320;
/** A line that is longer than this many times its height is no line of text. */
const LONGEST_LINE = 60;

interface Normalisation {
  /** In the order blue, green, red, on the scale of 0 to 1. */
  readonly mean: readonly [number, number, number];
  readonly std: readonly [number, number, number];
}

/** ImageNet's figures in the order in which PaddleOCR applies them, that is to blue first. */
const detectorNormalisation: Normalisation = { mean: [0.485, 0.456, 0.406], std: [0.229, 0.224, 0.225] };
const lineNormalisation: Normalisation = { mean: [0.5, 0.5, 0.5], std: [0.5, 0.5, 0.5] };

/** The size at which the detector sees an image: enlarged like for any reader, then rounded to multiples of 32. */
export function detectorSize({ width, height }: Size): Size {
  const scale = enlargement(width, height);
  const fit = (side: number): number => Math.max(STRIDE, Math.round((side * scale) / STRIDE) * STRIDE);
  return { width: fit(width), height: fit(height) };
}

/** How wide a line is at the recogniser's height, without what it is filled up with. */
export function lineWidth({ width, height }: Size): number {
  return Math.min(LINE_HEIGHT * LONGEST_LINE, Math.max(1, Math.ceil((LINE_HEIGHT * width) / height)));
}

/** Interleaved RGB bytes as normalised planes of blue, green and red, in rows of `stride` floats whose rest stays 0. */
export function toPlanes(image: RgbImage, { mean, std }: Normalisation, stride = image.width): Float32Array {
  const { width, height, data } = image;
  const planes = new Float32Array(3 * stride * height);
  for (let channel = 0; channel < 3; channel++) {
    const [scale, shift] = [1 / (255 * std[channel]), mean[channel] / std[channel]];
    for (let y = 0; y < height; y++) {
      const row = (channel * height + y) * stride;
      for (let x = 0; x < width; x++) planes[row + x] = data[(y * width + x) * 3 + 2 - channel] * scale - shift;
    }
  }
  return planes;
}

export interface NetworkInput {
  readonly data: Float32Array;
  readonly shape: readonly [1, 3, number, number];
}

/** The whole image for the detector. */
export async function detectorInput(image: RgbImage): Promise<NetworkInput> {
  const { width, height } = detectorSize(image);
  const resized = await resize(image, { left: 0, top: 0, right: image.width, bottom: image.height }, width, height);
  return { data: toPlanes(resized, detectorNormalisation), shape: [1, 3, height, width] };
}

/** One box of the image for the recogniser. */
export async function lineInput(image: RgbImage, box: Box): Promise<NetworkInput> {
  const width = lineWidth({ width: box.right - box.left, height: box.bottom - box.top });
  const stride = Math.max(LINE_WIDTH, width);
  const line = await resize(image, box, width, LINE_HEIGHT);
  return { data: toPlanes(line, lineNormalisation, stride), shape: [1, 3, LINE_HEIGHT, stride] };
}

async function resize(image: RgbImage, box: Box, width: number, height: number): Promise<RgbImage> {
  const { default: sharp } = await import('sharp');
  const { data } = await sharp(image.data, { raw: { width: image.width, height: image.height, channels: 3 } })
    .extract({ left: box.left, top: box.top, width: box.right - box.left, height: box.bottom - box.top })
    .resize(width, height, { fit: 'fill', kernel: 'linear' })
    .raw()
    .toBuffer({ resolveWithObject: true });
  return { width, height, data: new Uint8Array(data.buffer, data.byteOffset, data.length) };
}
