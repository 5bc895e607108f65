/**
 * Cheap statistics of a policy's images that reveal an exploited reward: backgrounds disappear (edge density and color entropy fall),
 * images become dark, garish, blurred or tiled, the source is copied or ignored, or one image answers every prompt. Pure functions of pixels.
 */
import type { RgbImage } from '../../core/images/image.js';

export interface ImageStatistics {
  /**
   * Share of interior pixels on an edge, in [0, 1]: the luma's gradient by Sobel's operator is at least `EDGE_HEIGHT` long. The operator is
   * divided by 4, so that a step between two columns gives its own height. 0 for an image without interior.
   */
  readonly edgeDensity: number;
  /** Shannon entropy -sum p log2 p, in bits, of the colors at 8 levels per channel: from 0 (one color) to 9 (all 512 equally often). */
  readonly colorEntropy: number;
  /** Share of pixels with a luma below `DARK_LUMA`, in [0, 1]. */
  readonly darkFraction: number;
  /** Mean of max - min over a pixel's channels, divided by 255, in [0, 1]: 0 for grays. */
  readonly saturation: number;
  /** Mean |Laplacian| of the luma over interior pixels, divided by 255, in [0, 4]. It falls when images blur. */
  readonly sharpness: number;
  /**
   * Visible borders of latents or tokens: how much larger the mean luma step across lines of a grid is than across all other lines, divided by 255.
   * The largest of the grids with `GRID_PERIODS` pixels, at least 0.
   */
  readonly grid: number;
}

/** Sides in pixels of a latent and of a token of the usual image editors. */
const GRID_PERIODS = [8, 16] as const;

/** A tenth of the range: above the noise of codecs, below the outlines of flat drawings. */
export const EDGE_HEIGHT = 25.5;
/** An eighth of the range. */
export const DARK_LUMA = 32;

/** Levels per channel of the color histogram, as a shift of eight-bit samples. */
const COLOR_SHIFT = 5;
const COLOURS = 512;

/** The statistics of one image. Raises RangeError if its size and its data do not agree. */
export function imageStatistics(image: RgbImage): ImageStatistics {
  const { width, height, data } = image;
  const pixels = width * height;
  if (pixels === 0 || data.length !== pixels * 3) {
    throw new RangeError(`${data.length} samples are no RGB image of ${width}x${height} pixels`);
  }
  const luma = new Int32Array(pixels);
  const histogram = new Uint32Array(COLOURS);
  let [dark, chroma] = [0, 0];
  for (let i = 0, at = 0; i < pixels; i++, at += 3) {
    const [red, green, blue] = [data[at], data[at + 1], data[at + 2]];
    // ITU-R BT.601 weights in 256ths. Luma stays in 256ths, so that nothing is rounded.
    const y = 77 * red + 150 * green + 29 * blue;
    luma[i] = y;
    if (y < DARK_LUMA * 256) dark++;
    chroma += Math.max(red, green, blue) - Math.min(red, green, blue);
    histogram[((red >> COLOR_SHIFT) << 6) | ((green >> COLOR_SHIFT) << 3) | (blue >> COLOR_SHIFT)]++;
  }
  return {
    edgeDensity: edgeDensity(luma, width, height),
    colorEntropy: entropy(histogram, pixels),
    darkFraction: dark / pixels,
    saturation: chroma / (255 * pixels),
    sharpness: sharpness(luma, width, height),
    grid: Math.max(...GRID_PERIODS.map((period) => gridStep(luma, width, height, period))),
  };
}

/** The range of luma in 256ths. */
const LUMA_RANGE = 255 * 256;

function sharpness(luma: Int32Array, width: number, height: number): number {
  if (width < 3 || height < 3) return 0;
  let sum = 0;
  for (let y = 1; y < height - 1; y++) {
    for (let x = 1, at = y * width + 1; x < width - 1; x++, at++) {
      sum += Math.abs(4 * luma[at] - luma[at - 1] - luma[at + 1] - luma[at - width] - luma[at + width]);
    }
  }
  return sum / (LUMA_RANGE * (width - 2) * (height - 2));
}

/** Excess of the steps across every `period`th line over the others. 0 for an image without lines of both kinds. */
function gridStep(luma: Int32Array, width: number, height: number, period: number): number {
  const [onGrid, beside] = [
    { sum: 0, count: 0 },
    { sum: 0, count: 0 },
  ];
  const add = (line: number, step: number): void => {
    const steps = line % period === 0 ? onGrid : beside;
    steps.sum += Math.abs(step);
    steps.count += 1;
  };
  for (let y = 0, at = 0; y < height; y++) {
    for (let x = 0; x < width; x++, at++) {
      if (x > 0) add(x, luma[at] - luma[at - 1]);
      if (y > 0) add(y, luma[at] - luma[at - width]);
    }
  }
  if (onGrid.count === 0 || beside.count === 0) return 0;
  return Math.max(0, onGrid.sum / onGrid.count - beside.sum / beside.count) / LUMA_RANGE;
}

function edgeDensity(luma: Int32Array, width: number, height: number): number {
  if (width < 3 || height < 3) return 0;
  // Sobel's weights sum to 4 on each side, and luma is in 256ths.
  const threshold = (EDGE_HEIGHT * 4 * 256) ** 2;
  let edges = 0;
  for (let y = 1; y < height - 1; y++) {
    let at = y * width + 1;
    for (let x = 1; x < width - 1; x++, at++) {
      const northWest = luma[at - width - 1];
      const northEast = luma[at - width + 1];
      const southWest = luma[at + width - 1];
      const southEast = luma[at + width + 1];
      const across = northEast - northWest + 2 * (luma[at + 1] - luma[at - 1]) + southEast - southWest;
      const down = southWest - northWest + 2 * (luma[at + width] - luma[at - width]) + southEast - northEast;
      if (across * across + down * down >= threshold) edges++;
    }
  }
  return edges / ((width - 2) * (height - 2));
}

function entropy(histogram: Uint32Array, total: number): number {
  let bits = 0;
  for (const count of histogram) {
    if (count > 0) bits -= (count / total) * Math.log2(count / total);
  }
  return bits;
}

/**
 * The similarity of an image to its source: 1 - mean |a - b| / 255 over all samples, in [0, 1]. 1 means a copy. If the sizes differ, each
 * pixel is compared with the nearest pixel of the source.
 */
export function sourceSimilarity(image: RgbImage, source: RgbImage): number {
  const { width, height, data } = image;
  const columns = Int32Array.from({ length: width }, (_, x) => 3 * Math.floor(((x + 0.5) * source.width) / width));
  let difference = 0;
  let at = 0;
  for (let y = 0; y < height; y++) {
    const row = 3 * source.width * Math.floor(((y + 0.5) * source.height) / height);
    for (let x = 0; x < width; x++, at += 3) {
      const from = row + columns[x];
      difference +=
        Math.abs(data[at] - source.data[from]) +
        Math.abs(data[at + 1] - source.data[from + 1]) +
        Math.abs(data[at + 2] - source.data[from + 2]);
    }
  }
  return 1 - difference / (255 * data.length);
}

/**
 * A pixel counts as to be changed if a channel of source and labeled result differs by more levels than this, which is above the noise of
 * a codec.
 */
export const CHANGED_LEVELS = 10;

/** The share of pixels that differ from the nearest pixel of the source by more than `CHANGED_LEVELS` in a channel, in [0, 1]. */
export function changedFraction(image: RgbImage, source: RgbImage): number {
  const { width, height, data } = image;
  const from = nearestOf(source, width, height);
  let changed = 0;
  for (let y = 0, at = 0; y < height; y++) {
    for (let x = 0; x < width; x++, at += 3) {
      const near = from(x, y);
      const differs = (c: number): boolean => Math.abs(data[at + c] - source.data[near + c]) > CHANGED_LEVELS;
      if (differs(0) || differs(1) || differs(2)) changed += 1;
    }
  }
  return changed / (width * height);
}

export interface EditAgreement {
  /**
   * 1 - sum |edited - truth| / sum |source - truth|, at least 0, over the pixels to be changed. 1 if they equal the labeled result, 0 if
   * they are no nearer to it than the source is.
   */
  readonly made: number;
  /**
   * 1 - e / d, at least 0. e is the mean |edited - truth| of the other pixels, d the mean |source - truth| of the pixels to be changed. 0
   * if the other pixels are as far off as the pixels to be changed were. 1 if every pixel is to be changed.
   */
  readonly kept: number;
}

/**
 * How much of an edit is made, and how much of the rest is kept. If no pixel is to be changed, `made` is 1 and d is the whole range. If the
 * sizes differ, each pixel of `edited` is compared with the nearest pixel of the others.
 */
export function editAgreement(edited: RgbImage, source: RgbImage, truth: RgbImage): EditAgreement {
  const { width, height, data } = edited;
  const changed = { pixels: 0, error: 0, before: 0 };
  const rest = { pixels: 0, error: 0 };
  const [fromSource, fromTruth] = [nearestOf(source, width, height), nearestOf(truth, width, height)];
  for (let y = 0, at = 0; y < height; y++) {
    for (let x = 0; x < width; x++, at += 3) {
      const [s, t] = [fromSource(x, y), fromTruth(x, y)];
      let [error, before, largest] = [0, 0, 0];
      for (let c = 0; c < 3; c++) {
        const difference = Math.abs(source.data[s + c] - truth.data[t + c]);
        before += difference;
        largest = Math.max(largest, difference);
        error += Math.abs(data[at + c] - truth.data[t + c]);
      }
      const where = largest > CHANGED_LEVELS ? changed : rest;
      where.pixels += 1;
      where.error += error;
      if (where === changed) changed.before += before;
    }
  }
  const perPixel = changed.pixels === 0 ? 3 * 255 : changed.before / changed.pixels;
  return {
    made: changed.pixels === 0 ? 1 : Math.max(0, 1 - changed.error / changed.before),
    kept: rest.pixels === 0 ? 1 : Math.max(0, 1 - rest.error / rest.pixels / perPixel),
  };
}

/** Index in an image's data of the pixel nearest to a pixel of an image of `width` by `height` pixels. */
function nearestOf(image: RgbImage, width: number, height: number): (x: number, y: number) => number {
  return (x, y) =>
    3 * (image.width * Math.floor(((y + 0.5) * image.height) / height) + Math.floor(((x + 0.5) * image.width) / width));
}

/** An artifact for `repeatRate`. */
export interface Artifact {
  /** Names its prompt. */
  readonly prompt: string;
  readonly digest: string;
}

/**
 * Share of artifacts that equal, pixel by pixel, an artifact for another prompt. Repeats for one prompt do not count: they are agreement,
 * not collapse. NaN for none.
 */
export function repeatRate(artifacts: readonly Artifact[]): number {
  const promptsOf = new Map<string, Set<string>>();
  for (const { prompt, digest } of artifacts) {
    const prompts = promptsOf.get(digest);
    if (prompts === undefined) promptsOf.set(digest, new Set([prompt]));
    else prompts.add(prompt);
  }
  const repeated = artifacts.filter(({ digest }) => (promptsOf.get(digest)?.size ?? 0) > 1);
  return repeated.length / artifacts.length;
}
