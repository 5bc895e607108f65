/** Reads signs: measures how much ink is where. A sign shows its own two colours in its strip. */
import type { RgbImage } from '../../core/image.js';
import { stripRows, wordRows, type SignGeometry, type SignStyle } from '../world/sign_scenes.js';
import type { Rgb } from '../world/draw.js';
import { resample } from './read_scene.js';

/** Pictures are scaled down to at most this height, in pixels. */
const MOST_HEIGHT = 64;
/** The lowest sign, in pixels. */
const LEAST_HEIGHT = 12;

/** A picture at the size at which it was drawn: small pictures are enlarged for a judge by turning each pixel into a square. */
export function nativeSize(image: RgbImage): RgbImage {
  const { width, height } = image;
  for (let factor = Math.floor(height / LEAST_HEIGHT); factor > 1; factor--) {
    if (width % factor !== 0 || height % factor !== 0) continue;
    const small = resample(image, width / factor, height / factor);
    if (isEnlarged(image, small, factor)) return small;
  }
  const factor = Math.ceil(height / MOST_HEIGHT);
  return resample(image, Math.max(1, Math.floor(width / factor)), Math.max(1, Math.floor(height / factor)));
}

function isEnlarged(image: RgbImage, small: RgbImage, factor: number): boolean {
  for (let y = 0; y < image.height; y++) {
    const row = Math.floor(y / factor) * small.width;
    for (let x = 0; x < image.width; x++) {
      const [at, from] = [(y * image.width + x) * 3, (row + Math.floor(x / factor)) * 3];
      for (let channel = 0; channel < 3; channel++) {
        if (image.data[at + channel] !== small.data[from + channel]) return false;
      }
    }
  }
  return true;
}

/** The mean colour of some rows. */
function meanColour({ width, data }: RgbImage, from: number, rows: number): Rgb {
  const sum = [0, 0, 0];
  for (let at = from * width * 3; at < (from + rows) * width * 3; at++) sum[at % 3] += data[at];
  const [red, green, blue] = sum.map((value) => value / (width * rows));
  return [red, green, blue];
}

/** A strip has two colours if they are at least this far apart (Euclidean, in levels of 0 to 255). */
const LEAST_APART = 64;

/** The colours that a sign's strip shows; null if it does not show two. */
export function stripStyle(image: RgbImage): SignStyle | null {
  const strip = stripRows(image);
  const paper = meanColour(image, wordRows(image), strip.paper);
  const ink = meanColour(image, image.height - strip.bar, strip.bar);
  return Math.hypot(...ink.map((value, i) => value - paper[i])) < LEAST_APART ? null : { ink, paper };
}

/** A sign above its strip, in a style's colours. */
export interface SeenSign {
  readonly geometry: SignGeometry;
  /** Rows above the strip. */
  readonly rows: number;
  /** Between paper (0) and ink (1); axes [rows, width]. */
  readonly ink: Float32Array;
  /** How far a pixel is from every mixture of the two colours, in levels of 0 to 255 (Euclidean); axes [rows, width]. */
  readonly off: Float32Array;
}

/** Measures how much of each pixel above the strip is ink: its position on the line from paper to ink, and its distance from that line. */
export function seeSign(image: RgbImage, { ink, paper }: SignStyle): SeenSign {
  const rows = wordRows(image);
  const line = ink.map((value, i) => value - paper[i]);
  const length = line.reduce((sum, value) => sum + value * value, 0);
  const seen = { ink: new Float32Array(rows * image.width), off: new Float32Array(rows * image.width) };
  for (let at = 0; at < rows * image.width; at++) {
    const from = paper.map((value, i) => image.data[3 * at + i] - value);
    const along = Math.min(1, Math.max(0, from.reduce((sum, value, i) => sum + value * line[i], 0) / length));
    seen.ink[at] = along;
    seen.off[at] = Math.hypot(...from.map((value, i) => value - along * line[i]));
  }
  return { geometry: { width: image.width, height: image.height }, rows, ...seen };
}
