/**
 * Pictures in another size by cubic interpolation, with the numbers of Pillow's `Image.resize(size, Resampling.BICUBIC)` up to its version 12:
 * models that see were trained on these. (Version 13 takes rows first where a picture grows wider and less high, and torch's are at most 2 of 255
 * away.) Where a side shrinks the kernel widens, so that nothing is skipped. Weights are fixed-point numbers, and each pass
 * rounds to bytes, columns first (Pillow, libImaging/Resample.c).
 */
import type { RgbImage } from './png.js';

/** Keys' cubic kernel ("Cubic Convolution Interpolation", 1981) with a = -1/2, which reaches 2 to either side. */
const A = -0.5;
const REACH = 2;

function kernel(distance: number): number {
  const x = Math.abs(distance);
  if (x < 1) return ((A + 2) * x - (A + 3)) * x * x + 1;
  return x < REACH ? (((x - 5) * x + 8) * x - 4) * A : 0;
}

/** Bits behind the point: 32, less those of a byte and of two that sums need. */
const PRECISION = 22;
const ONE = 2 ** PRECISION;

/** Of one place along a side: the first place that it reads, and what each from there on weighs. */
interface Reads {
  readonly first: number;
  readonly weights: readonly number[];
}

function readsOf(from: number, to: number): Reads[] {
  const scale = from / to;
  const widened = Math.max(scale, 1);
  const reach = REACH * widened;
  return Array.from({ length: to }, (_, at) => {
    const centre = (at + 0.5) * scale;
    const first = Math.max(0, Math.trunc(centre - reach + 0.5));
    const end = Math.min(from, Math.trunc(centre + reach + 0.5));
    const raw = Array.from({ length: end - first }, (_, i) => kernel((i + first - centre + 0.5) / widened));
    const sum = raw.reduce((total, weight) => total + weight, 0);
    return { first, weights: raw.map((weight) => awayFromZero((weight / sum) * ONE)) };
  });
}

/** The nearest whole number, halves away from zero. */
function awayFromZero(x: number): number {
  return Math.trunc(x < 0 ? x - 0.5 : x + 0.5);
}

function toByte(sum: number): number {
  return Math.min(255, Math.max(0, Math.floor(sum / ONE)));
}

/** The picture in a size of `width` x `height`, both at least 1; the shape is the caller's to keep. */
export function resizeCubic(image: RgbImage, width: number, height: number): RgbImage {
  const wide = width === image.width ? image : resizedColumns(image, width);
  return height === image.height ? wide : resizedRows(wide, height);
}

function resizedColumns({ width: from, height, data }: RgbImage, width: number): RgbImage {
  const reads = readsOf(from, width);
  const out = new Uint8Array(width * height * 3);
  for (let y = 0; y < height; y++) {
    for (let x = 0; x < width; x++) {
      const { first, weights } = reads[x];
      for (let channel = 0; channel < 3; channel++) {
        let sum = ONE / 2;
        for (let i = 0; i < weights.length; i++) sum += data[(y * from + first + i) * 3 + channel] * weights[i];
        out[(y * width + x) * 3 + channel] = toByte(sum);
      }
    }
  }
  return { width, height, data: out };
}

function resizedRows({ width, height: from, data }: RgbImage, height: number): RgbImage {
  const reads = readsOf(from, height);
  const row = width * 3;
  const out = new Uint8Array(row * height);
  const sums = new Float64Array(row);
  for (let y = 0; y < height; y++) {
    const { first, weights } = reads[y];
    sums.fill(ONE / 2);
    weights.forEach((weight, i) => {
      const at = (first + i) * row;
      for (let x = 0; x < row; x++) sums[x] += data[at + x] * weight;
    });
    for (let x = 0; x < row; x++) out[y * row + x] = toByte(sums[x]);
  }
  return { width, height, data: out };
}
