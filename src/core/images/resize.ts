/**
 * Resizes images by cubic, linear or Lanczos interpolation, bit-identical to Pillow (`Image.resize` with `Resampling.BICUBIC`, `BILINEAR` or
 * `LANCZOS` on RGB).
 * Vision models were trained on these pixels, and libvips' `cubic` differs by up to 13 levels. Separable, with weights in 22-bit fixed
 * point, rounded to bytes between the two passes (Pillow, libImaging/Resample.c). That rounding makes the order of the passes matter, and
 * Pillow 13 changed it.
 */
import type { RgbImage } from './png.js';

/** A rectangle of an image, in pixels. */
export interface Window {
  readonly left: number;
  readonly top: number;
  readonly width: number;
  readonly height: number;
}

/** Of 32 bits, 8 are for a level, and 2 for negative weights and sums above 1. */
const FRACTION_BITS = 22;
const HALF = 1 << (FRACTION_BITS - 1);

/** The weight of an input pixel at a distance from the output pixel. The kernel is widened if it also has to average. */
interface Kernel {
  /** Input pixels to either side. */
  readonly reach: number;
  readonly weigh: (distance: number) => number;
}

/** For each output position: the first input position and its weights, all of the same count. */
interface Taps {
  readonly first: Int32Array;
  readonly weights: Int32Array;
  readonly count: number;
}

/** Keys' cubic convolution with a = -0.5. */
const cubic: Kernel = {
  reach: 2,
  weigh(distance) {
    if (distance < 1) return (1.5 * distance - 2.5) * distance * distance + 1;
    if (distance < 2) return (((distance - 5) * distance + 8) * distance - 4) * -0.5;
    return 0;
  },
};
/** The product of two sines of width 1 and 3. */
const lanczos: Kernel = {
  reach: 3,
  weigh: (distance) => (distance < 3 ? sinc(distance) * sinc(distance / 3) : 0),
};
const linear: Kernel = { reach: 1, weigh: (distance) => Math.max(0, 1 - distance) };

function sinc(x: number): number {
  return x === 0 ? 1 : Math.sin(x * Math.PI) / (x * Math.PI);
}

/** Weights for the output positions [from, from + length) of an axis that is resized from `input` to `output` pixels. */
function tapsOf({ reach, weigh }: Kernel, input: number, output: number, from: number, length: number): Taps {
  const scale = input / output;
  // Enlarging keeps the kernel. Shrinking widens it over all input pixels of an output pixel.
  const widening = Math.max(scale, 1);
  const support = reach * widening;
  const count = Math.min(input, Math.ceil(support) * 2 + 1);
  const first = new Int32Array(length);
  const weights = new Int32Array(length * count);
  for (let i = 0; i < length; i++) {
    const center = (from + i + 0.5) * scale;
    const low = Math.max(0, Math.trunc(center - support + 0.5));
    const high = Math.min(input, Math.trunc(center + support + 0.5));
    const exact = Array.from({ length: high - low }, (_, x) =>
      weigh(Math.abs((x + low - center + 0.5) * (1 / widening))),
    );
    const sum = exact.reduce((total, weight) => total + weight, 0);
    // Unused last taps have weight 0, but must lie inside the image.
    first[i] = Math.min(low, input - count);
    exact.forEach((weight, x) => {
      const fraction = (sum === 0 ? weight : weight / sum) * 2 ** FRACTION_BITS;
      weights[i * count + low - first[i] + x] = Math.trunc(fraction + (fraction < 0 ? -0.5 : 0.5));
    });
  }
  return { first, weights, count };
}

/** A sum in fixed point as a level. */
function level(sum: number): number {
  const whole = sum >> FRACTION_BITS;
  return whole < 0 ? 0 : whole > 255 ? 255 : whole;
}

/** Combines the columns of every row by `taps`. */
function alongRows({ width, height, data }: RgbImage, { first, weights, count }: Taps): RgbImage {
  const out = new Uint8Array(first.length * height * 3);
  for (let y = 0; y < height; y++) {
    const from = y * width * 3;
    const to = y * first.length * 3;
    for (let x = 0; x < first.length; x++) {
      let at = from + first[x] * 3;
      let [red, green, blue] = [HALF, HALF, HALF];
      for (let k = x * count; k < (x + 1) * count; k++, at += 3) {
        red = (red + data[at] * weights[k]) | 0;
        green = (green + data[at + 1] * weights[k]) | 0;
        blue = (blue + data[at + 2] * weights[k]) | 0;
      }
      out[to + x * 3] = level(red);
      out[to + x * 3 + 1] = level(green);
      out[to + x * 3 + 2] = level(blue);
    }
  }
  return { width: first.length, height, data: out };
}

/** Combines the rows of every column by `taps`. */
function alongColumns({ width, data }: RgbImage, { first, weights, count }: Taps): RgbImage {
  const stride = width * 3;
  const out = new Uint8Array(first.length * stride);
  for (let y = 0; y < first.length; y++) {
    for (let i = 0; i < stride; i++) {
      let sum = HALF;
      for (let k = y * count, at = first[y] * stride + i; k < (y + 1) * count; k++, at += stride) {
        sum = (sum + data[at] * weights[k]) | 0;
      }
      out[y * stride + i] = level(sum);
    }
  }
  return { width, height: first.length, data: out };
}

/** The part of an axis that `taps` read, and the taps relative to it. */
function within({ first, weights, count }: Taps): { from: number; length: number; taps: Taps } {
  const from = first[0];
  const length = first[first.length - 1] + count - from;
  return { from, length, taps: { first: first.map((at) => at - from), weights, count } };
}

/** A window of an image, which must lie inside it. */
export function cropImage({ width, data }: RgbImage, { left, top, ...size }: Window): RgbImage {
  const stride = size.width * 3;
  const out = new Uint8Array(size.height * stride);
  for (let y = 0; y < size.height; y++) {
    const from = ((top + y) * width + left) * 3;
    out.set(data.subarray(from, from + stride), y * stride);
  }
  return { ...size, data: out };
}

/** The image at `width` x `height`, both at least 1, as in Pillow up to 12. Callers keep the aspect ratio. Torch differs by at most 2 of 255. */
export function resizeCubic(image: RgbImage, width: number, height: number): RgbImage {
  if (width === image.width && height === image.height) return image;
  return resized(cubic, image, { width, height }, { left: 0, top: 0, width, height }, false);
}

/** Like `resizeCubic`, by Lanczos' filter of three lobes. */
export function resizeLanczos(image: RgbImage, width: number, height: number): RgbImage {
  if (width === image.width && height === image.height) return image;
  return resized(lanczos, image, { width, height }, { left: 0, top: 0, width, height }, false);
}

const kernels = { cubic, linear } as const;
export type ResizeFilter = keyof typeof kernels;

/**
 * A window of the image resized as in Pillow 13. Only the window is computed, so an image of 10000x1 pixels costs no more than another. The
 * window must lie inside the resized image.
 */
export function resizeWindow(
  filter: ResizeFilter,
  image: RgbImage,
  size: Pick<Window, 'width' | 'height'>,
  window: Window,
): RgbImage {
  // Found by comparison with Pillow 13.0 over 1,475 shapes, without exception.
  const isColumnsFirst = size.height < image.height && image.height - size.height > 2 * (image.width - size.width);
  return resized(kernels[filter], image, size, window, isColumnsFirst);
}

/** A window, inside `size`, of the image resized to `size` by linear interpolation, as in Pillow up to 12. */
export function resizeLinearWindow(image: RgbImage, size: Pick<Window, 'width' | 'height'>, window: Window): RgbImage {
  return resized(linear, image, size, window, false);
}

function resized(
  kernel: Kernel,
  image: RgbImage,
  { width, height }: Pick<Window, 'width' | 'height'>,
  window: Window,
  isColumnsFirst: boolean,
): RgbImage {
  const x = within(tapsOf(kernel, image.width, width, window.left, window.width));
  const y = within(tapsOf(kernel, image.height, height, window.top, window.height));
  const part = cropImage(image, { left: x.from, top: y.from, width: x.length, height: y.length });
  return isColumnsFirst ? alongRows(alongColumns(part, y.taps), x.taps) : alongColumns(alongRows(part, x.taps), y.taps);
}
