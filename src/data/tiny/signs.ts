/**
 * Word signs: capital letters and digits as strokes of a round pen, since a machine may not have fonts. The forms are those of plain sans-serif type,
 * which readers of ordinary print know.
 */
import { DataError } from '../../core/errors.js';
import type { RgbImage } from '../../core/images/image.js';
import { BACKGROUND, type Rgb } from './draw.js';

/** x to the right from the letter's left edge, y down from its top. A letter is 1 high. */
type Point = readonly [x: number, y: number];
type Stroke = readonly Point[];

interface Letter {
  readonly width: number;
  readonly strokes: readonly Stroke[];
}

/** Part of an ellipse as a stroke. Angles in degrees, 0 to the right, 90 downwards. */
function arc(x: number, y: number, radiusX: number, radiusY: number, from: number, to: number): Stroke {
  const steps = Math.ceil(Math.abs(to - from) / 15);
  return Array.from({ length: steps + 1 }, (_, i): Point => {
    const angle = ((from + ((to - from) * i) / steps) * Math.PI) / 180;
    return [x + radiusX * Math.cos(angle), y + radiusY * Math.sin(angle)];
  });
}

const letter = (width: number, ...strokes: Stroke[]): Letter => ({ width, strokes });

const LETTERS: Readonly<Record<string, Letter>> = {
  A: letter(
    0.7,
    [
      [0, 1],
      [0.35, 0],
      [0.7, 1],
    ],
    [
      [0.12, 0.66],
      [0.58, 0.66],
    ],
  ),
  B: letter(
    0.58,
    [[0.32, 0.47], [0, 0.47], [0, 0], [0.32, 0], ...arc(0.32, 0.235, 0.22, 0.235, -90, 90)],
    [[0, 0.47], [0, 1], [0.32, 1], ...arc(0.32, 0.735, 0.26, 0.265, 90, -90)],
  ),
  C: letter(0.7, arc(0.42, 0.5, 0.42, 0.5, -45, -315)),
  D: letter(0.65, [[0, 0], [0.2, 0], ...arc(0.2, 0.5, 0.45, 0.5, -90, 90), [0, 1], [0, 0]]),
  E: letter(
    0.52,
    [
      [0.52, 0],
      [0, 0],
      [0, 1],
      [0.52, 1],
    ],
    [
      [0, 0.47],
      [0.45, 0.47],
    ],
  ),
  F: letter(
    0.5,
    [
      [0.5, 0],
      [0, 0],
      [0, 1],
    ],
    [
      [0, 0.48],
      [0.43, 0.48],
    ],
  ),
  G: letter(0.74, [...arc(0.42, 0.5, 0.42, 0.5, -45, -330), [0.76, 0.55], [0.45, 0.55]]),
  H: letter(
    0.62,
    [
      [0, 0],
      [0, 1],
    ],
    [
      [0.62, 0],
      [0.62, 1],
    ],
    [
      [0, 0.47],
      [0.62, 0.47],
    ],
  ),
  I: letter(0.02, [
    [0.01, 0],
    [0.01, 1],
  ]),
  J: letter(0.42, [[0.42, 0], [0.42, 0.76], ...arc(0.21, 0.76, 0.21, 0.24, 0, 165)]),
  K: letter(
    0.6,
    [
      [0, 0],
      [0, 1],
    ],
    [
      [0.56, 0],
      [0, 0.6],
    ],
    [
      [0.2, 0.4],
      [0.6, 1],
    ],
  ),
  L: letter(0.48, [
    [0, 0],
    [0, 1],
    [0.48, 1],
  ]),
  M: letter(0.76, [
    [0, 1],
    [0, 0],
    [0.38, 0.8],
    [0.76, 0],
    [0.76, 1],
  ]),
  N: letter(0.64, [
    [0, 1],
    [0, 0],
    [0.64, 1],
    [0.64, 0],
  ]),
  O: letter(0.8, arc(0.4, 0.5, 0.4, 0.5, 0, 360)),
  P: letter(0.56, [[0, 1], [0, 0], [0.3, 0], ...arc(0.3, 0.275, 0.26, 0.275, -90, 90), [0, 0.55]]),
  Q: letter(0.8, arc(0.4, 0.5, 0.4, 0.5, 0, 360), [
    [0.46, 0.72],
    [0.78, 1.06],
  ]),
  R: letter(
    0.6,
    [[0, 1], [0, 0], [0.3, 0], ...arc(0.3, 0.26, 0.25, 0.26, -90, 90), [0, 0.52]],
    [
      [0.3, 0.52],
      [0.6, 1],
    ],
  ),
  S: letter(0.56, [...arc(0.28, 0.255, 0.25, 0.255, -30, -255), ...arc(0.28, 0.745, 0.28, 0.255, -75, 150)]),
  T: letter(
    0.64,
    [
      [0, 0],
      [0.64, 0],
    ],
    [
      [0.32, 0],
      [0.32, 1],
    ],
  ),
  U: letter(0.62, [[0, 0], [0, 0.68], ...arc(0.31, 0.68, 0.31, 0.32, 180, 0), [0.62, 0]]),
  V: letter(0.68, [
    [0, 0],
    [0.34, 1],
    [0.68, 0],
  ]),
  W: letter(1, [
    [0, 0],
    [0.25, 1],
    [0.5, 0.06],
    [0.75, 1],
    [1, 0],
  ]),
  X: letter(
    0.64,
    [
      [0, 0],
      [0.64, 1],
    ],
    [
      [0.64, 0],
      [0, 1],
    ],
  ),
  Y: letter(
    0.64,
    [
      [0, 0],
      [0.32, 0.5],
      [0.64, 0],
    ],
    [
      [0.32, 0.5],
      [0.32, 1],
    ],
  ),
  Z: letter(0.6, [
    [0, 0],
    [0.6, 0],
    [0, 1],
    [0.6, 1],
  ]),
  0: letter(0.54, arc(0.27, 0.5, 0.27, 0.5, 0, 360)),
  1: letter(0.26, [
    [0, 0.22],
    [0.26, 0],
    [0.26, 1],
  ]),
  2: letter(0.54, [...arc(0.27, 0.27, 0.26, 0.27, -170, 25), [0, 1], [0.54, 1]]),
  3: letter(
    0.54,
    [...arc(0.25, 0.24, 0.24, 0.24, -160, 90), [0.18, 0.48]],
    [[0.25, 0.48], ...arc(0.25, 0.73, 0.28, 0.27, -70, 160)],
  ),
  4: letter(0.6, [
    [0.46, 1],
    [0.46, 0],
    [0, 0.7],
    [0.6, 0.7],
  ]),
  5: letter(0.54, [[0.5, 0], [0.08, 0], [0.04, 0.46], ...arc(0.25, 0.68, 0.28, 0.32, -125, 150)]),
  6: letter(0.56, arc(0.28, 0.68, 0.28, 0.32, 0, 360), [[0, 0.68], ...arc(0.32, 0.5, 0.31, 0.5, 175, 300)]),
  7: letter(0.54, [
    [0, 0],
    [0.54, 0],
    [0.2, 1],
  ]),
  8: letter(0.54, arc(0.27, 0.24, 0.23, 0.24, 0, 360), arc(0.27, 0.74, 0.27, 0.26, 0, 360)),
  9: letter(0.56, arc(0.28, 0.32, 0.28, 0.32, 0, 360), [[0.56, 0.32], ...arc(0.24, 0.5, 0.31, 0.5, -5, 120)]),
  ' ': letter(0.2),
};

/** Gap between letters, and the pen's width, in heights of a letter. */
const GAP = 0.26;
const PEN = 0.13;

export interface SignOptions {
  /** Height of a letter in pixels. */
  readonly size?: number;
  readonly ink?: Rgb;
  /** The background: one color, or an image, which is copied. */
  readonly paper?: Rgb | RgbImage;
  /**
   * The size of the sign in pixels, with the word in its middle. Default: that of the paper if it is an image,
   * otherwise the word with a margin of half a letter.
   */
  readonly width?: number;
  readonly height?: number;
  /** Default: proportional. */
  readonly spacing?: Spacing;
}

/** A letter of a word and its left edge, in heights of a letter from the word's left edge. */
export interface PlacedLetter {
  readonly name: string;
  readonly left: number;
  /** In heights of a letter, between the centers of its outer strokes. */
  readonly width: number;
}

/** The spacing of letters: each with its own width, or all centered in cells as wide as a letter is high. */
export type Spacing = 'proportional' | 'cells';

/** A word's letters from the left. Raises DataError for anything but capital letters, digits and spaces. */
export function placeLetters(word: string, spacing: Spacing = 'proportional'): readonly PlacedLetter[] {
  let left = 0;
  return [...word].map((name, place) => {
    const found = LETTERS[name] as Letter | undefined;
    if (found === undefined) {
      throw new DataError(`a sign cannot show ${JSON.stringify(name)}; it has capital letters, digits and the space`);
    }
    const { width } = found;
    const placed = { name, left: spacing === 'cells' ? place + (1 - width) / 2 : left, width };
    left += width + GAP;
    return placed;
  });
}

/** The width of placed letters in heights of a letter: between the centers of the outer strokes, or over all cells. */
function widthOf(letters: readonly PlacedLetter[], spacing: Spacing): number {
  if (spacing === 'cells') return letters.length;
  const last = letters.at(-1);
  return last === undefined ? 0 : last.left + last.width;
}

/** The pixels of a word, including the pen's width. Raises the DataErrors of `placeLetters`. */
export function wordSize(
  word: string,
  size: number,
  spacing: Spacing = 'proportional',
): { readonly width: number; readonly height: number } {
  const wide = widthOf(placeLetters(word, spacing), spacing) + (spacing === 'cells' ? 0 : PEN);
  return { width: Math.ceil(wide * size), height: Math.ceil((1 + PEN) * size) };
}

/**
 * The position of letters in pixels: the centers of the topmost and leftmost strokes, and the height between the top
 * and bottom ones.
 */
export interface Place {
  readonly left: number;
  readonly top: number;
  readonly size: number;
}

/** The place of a word in the middle of `width` x `height` pixels. Cells begin at whole pixels. */
export function middlePlace(
  letters: readonly PlacedLetter[],
  size: number,
  width: number,
  height: number,
  spacing: Spacing = 'proportional',
): Place {
  const left = (width - widthOf(letters, spacing) * size) / 2;
  return { left: spacing === 'cells' ? Math.floor(left) : left, top: (height - size) / 2, size };
}

/** The coverage of each pixel by the letters' ink, from 0 to 1. Axes [height, width]. */
export function inkCoverage(
  letters: readonly PlacedLetter[],
  { left, top, size }: Place,
  width: number,
  height: number,
): Float32Array {
  const coverage = new Float32Array(width * height);
  for (const { name, left: from } of letters) {
    for (const stroke of LETTERS[name].strokes) {
      const points = stroke.map(([x, y]): Point => [left + (from + x) * size, top + y * size]);
      for (let i = 1; i < points.length; i++) {
        cover(coverage, width, height, points[i - 1], points[i], (PEN * size) / 2);
      }
    }
  }
  return coverage;
}

function distanceTo(x: number, y: number, [ax, ay]: Point, [bx, by]: Point): number {
  const [dx, dy] = [bx - ax, by - ay];
  const along = Math.max(0, Math.min(1, ((x - ax) * dx + (y - ay) * dy) / (dx * dx + dy * dy || 1)));
  return Math.hypot(x - ax - along * dx, y - ay - along * dy);
}

/** Adds one segment of the pen's path to a coverage of 0 to 1 per pixel. */
function cover(coverage: Float32Array, width: number, height: number, from: Point, to: Point, radius: number): void {
  const top = Math.max(0, Math.floor(Math.min(from[1], to[1]) - radius - 1));
  const bottom = Math.min(height - 1, Math.ceil(Math.max(from[1], to[1]) + radius + 1));
  const left = Math.max(0, Math.floor(Math.min(from[0], to[0]) - radius - 1));
  const right = Math.min(width - 1, Math.ceil(Math.max(from[0], to[0]) + radius + 1));
  for (let y = top; y <= bottom; y++) {
    for (let x = left; x <= right; x++) {
      const inside = radius + 0.5 - distanceTo(x + 0.5, y + 0.5, from, to);
      const at = y * width + x;
      coverage[at] = Math.max(coverage[at], Math.min(1, inside));
    }
  }
}

function isImage(paper: Rgb | RgbImage): paper is RgbImage {
  return 'data' in paper;
}

/**
 * A sign that shows a word of capital letters, digits and spaces. Equal arguments give equal pixels. Raises DataError for another character, or when
 * the word does not fit on the sign.
 */
export function drawSign(word: string, options: SignOptions = {}): RgbImage {
  const { size = 32, ink = [16, 16, 16], paper = BACKGROUND } = options;
  const { spacing = 'proportional' } = options;
  const letters = placeLetters(word, spacing);
  const { width: wide, height: high } = wordSize(word, size, spacing);
  const given = isImage(paper) ? paper : null;
  const width = options.width ?? given?.width ?? wide + size;
  const height = options.height ?? given?.height ?? high + size;
  const fits =
    wide <= width && high <= height && (given === null || (given.width === width && given.height === height));
  if (!fits) {
    throw new DataError(`'${word}' needs ${wide}x${high} pixels, the sign has ${width}x${height}`, {
      next: 'Choose smaller letters, a shorter word, or paper of the size of the sign.',
    });
  }
  const coverage = inkCoverage(letters, middlePlace(letters, size, width, height, spacing), width, height);
  const data = new Uint8Array(width * height * 3);
  for (let at = 0; at < data.length; at++) {
    const below = isImage(paper) ? paper.data[at] : paper[at % 3];
    data[at] = Math.round(below + (ink[at % 3] - below) * coverage[Math.floor(at / 3)]);
  }
  return { width, height, data };
}
