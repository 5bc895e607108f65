/**
 * Reads pixels as a scene. Each cell is compared with every possible content. If it is close enough to one template and clearly closer to
 * it than to any other, it is read as that. Otherwise it is unreadable.
 */
import type { RgbImage } from '../../core/images/image.js';
import { imageSize, templates } from '../../data/tiny/draw.js';
import type { CellContent, Geometry, Scene } from '../../data/tiny/world.js';

/** The content of a cell. */
export type ReadContent = CellContent | 'unreadable';

export interface CellReading {
  readonly content: ReadContent;
  /** Root mean square difference to the nearest template, in levels of 0 to 255. */
  readonly deviation: number;
  /** 1 for a cell exactly as drawn, 0 for one that is equally far from two templates or too far from all. */
  readonly confidence: number;
}

/** An image as it was read. */
export interface Reading {
  readonly geometry: Geometry;
  /** The pixels that were read, resampled to the geometry's size. */
  readonly image: RgbImage;
  /** Row by row from the top left. */
  readonly cells: readonly CellReading[];
}

/**
 * Maximum deviation of a readable cell. Two templates differ by at least 42 levels (root mean square over a cell). A cell
 * that deviates by more than half of this may be closer to another template.
 */
export const MAX_DEVIATION = 21;
/** A cell has to be closer to its template than to the second closest by this factor. */
const CLEARLY_NEARER = 0.8;

/** Resamples an image by averaging over boxes (or repeating pixels). An image that already has that size is returned as it is. */
export function resample(image: RgbImage, width: number, height: number): RgbImage {
  if (image.width === width && image.height === height) return image;
  const data = new Uint8Array(width * height * 3);
  for (let y = 0; y < height; y++) {
    const top = Math.floor((y * image.height) / height);
    const bottom = Math.max(top + 1, Math.floor(((y + 1) * image.height) / height));
    for (let x = 0; x < width; x++) {
      const left = Math.floor((x * image.width) / width);
      const right = Math.max(left + 1, Math.floor(((x + 1) * image.width) / width));
      for (let channel = 0; channel < 3; channel++) {
        let sum = 0;
        for (let v = top; v < bottom; v++) {
          for (let u = left; u < right; u++) sum += image.data[(v * image.width + u) * 3 + channel];
        }
        data[(y * width + x) * 3 + channel] = Math.round(sum / ((bottom - top) * (right - left)));
      }
    }
  }
  return { width, height, data };
}

/** The pixels of one cell, axes [side, side, 3]. */
export function cellPixels(image: RgbImage, geometry: Geometry, cell: number): Uint8Array {
  const side = geometry.cell;
  const pixels = new Uint8Array(side * side * 3);
  const left = (cell % geometry.columns) * side;
  const top = Math.floor(cell / geometry.columns) * side;
  for (let y = 0; y < side; y++) {
    const from = ((top + y) * image.width + left) * 3;
    pixels.set(image.data.subarray(from, from + side * 3), y * side * 3);
  }
  return pixels;
}

/** Sum of squared differences. Stops early once it exceeds `limit`. */
function squaredDistance(a: Uint8Array, b: Uint8Array, limit: number): number {
  let sum = 0;
  for (let i = 0; i < a.length; i++) {
    const difference = a[i] - b[i];
    sum += difference * difference;
    if (sum > limit) return sum;
  }
  return sum;
}

function readCell(pixels: Uint8Array, side: number): CellReading {
  let best = Infinity;
  let secondBest = Infinity;
  let content: CellContent = null;
  for (const template of templates(side)) {
    const distance = squaredDistance(pixels, template.pixels, secondBest);
    if (distance < best) {
      secondBest = best;
      best = distance;
      content = template.content;
    } else if (distance < secondBest) {
      secondBest = distance;
    }
  }
  const deviation = Math.sqrt(best / pixels.length);
  const ambiguity = Math.sqrt(best / secondBest);
  const confidence = Math.max(0, 1 - Math.max(deviation / MAX_DEVIATION, ambiguity / CLEARLY_NEARER));
  const readable = deviation <= MAX_DEVIATION && ambiguity <= CLEARLY_NEARER;
  return { content: readable ? content : 'unreadable', deviation, confidence };
}

/** Reads an image of any size and content as a scene. */
export function readScene(image: RgbImage, geometry: Geometry): Reading {
  const { width, height } = imageSize(geometry);
  const sized = resample(image, width, height);
  const cells = Array.from({ length: geometry.columns * geometry.rows }, (_, cell) =>
    readCell(cellPixels(sized, geometry, cell), geometry.cell),
  );
  return { geometry, image: sized, cells };
}

/** The scene of a reading. Unreadable cells count as empty, and no edit refers to them. */
export function sceneOf(reading: Reading): Scene {
  return {
    geometry: reading.geometry,
    cells: reading.cells.map(({ content }) => (content === 'unreadable' ? null : content)),
  };
}
