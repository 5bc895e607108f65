/**
 * The question about alignment and quality of an image of a sign: whether it shows the word that the request quotes, and how clean it is.
 * Both are measured only from the pixels and the request.
 */
import type { RgbImage } from '../../core/images/image.js';
import { DataError, must } from '../../core/errors.js';
import { badRequest } from '../../core/http/refusal.js';
import { quotedIn } from '../terms/ocr/similarity.js';
import {
  wordRows,
  type SignStyle,
  stripRows,
  type SignGeometry,
  letterHeight,
  paperRows,
  SPACING,
} from '../../data/tiny/sign_scenes.js';
import { resample } from './read_scene.js';
import type { Rgb } from '../../data/tiny/draw.js';
import {
  inkCoverage,
  middlePlace,
  placeLetters,
  wordSize,
  type Place,
  type PlacedLetter,
} from '../../data/tiny/signs.js';
import { LRUCache } from 'lru-cache';

export interface SignScore {
  /** 0 to 10: 10 if every letter is as drawn, 0 if none resembles the requested letter more than another. */
  readonly alignment: number;
  /** 0 to 10. */
  readonly quality: number;
  readonly reasoning: string;
}

/** Ink outside the word, as a share of the word's ink, at which the penalty begins and at which the score is 0. */
const EXTRA_RANGE = [0.15, 0.75] as const;
/** Differences of the strip from the source's (root mean square, in levels of 0 to 255) at which the penalty begins and at which the score is 0. */
const STRIP_RANGE = [12, 60] as const;

/** The word that a request quotes, in the letters of signs. Raises Refusal for a word that no sign of this size can show. */
function wordOf(request: string, image: RgbImage): string {
  const word = (quotedIn(request) ?? '').toUpperCase();
  if (word === '') throw badRequest('The request quotes no word for the sign.', 'messages');
  try {
    if (hasRoom(image, word)) return word;
  } catch (cause) {
    if (!(cause instanceof DataError)) throw cause;
    throw badRequest(`This judge reads signs of capital letters and digits: ${cause.message}`, 'messages');
  }
  throw badRequest(`A sign of ${image.width}x${image.height} pixels has no room for '${word}'.`, 'messages');
}

/** The colors of a sign, and how well its strip agrees with the source's, 0 to 1. */
function strip(
  source: RgbImage | null,
  edited: RgbImage,
): { readonly style: SignStyle | null; readonly stayed: number } {
  if (source === null) return { style: stripStyle(edited), stayed: 1 };
  const given = resample(source, edited.width, edited.height);
  const style = stripStyle(given);
  if (style === null) throw badRequest('The source shows no sign: its strip does not have two colors.', 'messages');
  let sum = 0;
  const from = wordRows(edited) * edited.width * 3;
  for (let at = from; at < edited.data.length; at++) sum += (edited.data[at] - given.data[at]) ** 2;
  return { style, stayed: 1 - ramp(Math.sqrt(sum / (edited.data.length - from)), STRIP_RANGE) };
}

/**
 * Scores a sign. The colors are those of the source's strip if there is a source, which the sign then has to keep, else its own. A word
 * with one right letter of three gets 1, with two 4: half of a word is no word. Raises Refusal for requests that no sign can fulfill.
 * @param source at the size at which it was drawn, like `edited`. Null if only the sign was sent
 */
export function scoreSign(source: RgbImage | null, request: string, edited: RgbImage): SignScore {
  const word = wordOf(request, edited);
  const { style, stayed } = strip(source, edited);
  if (style === null) return { alignment: 0, quality: 0, reasoning: 'The sign does not have two colors.' };
  const sign = readSign(edited, style);
  const { letters, extra } = readWord(sign, word);
  const legible = letters.reduce((sum, score) => sum + score, 0) / letters.length;
  const alignment = Math.round(10 * legible ** 2 * (1 - ramp(extra, EXTRA_RANGE)) * stayed);
  const quality = scoreSignQuality(sign, letters.length);
  const percent = letters.map((score) => Math.round(100 * score)).join(', ');
  const changed = stayed < 1 ? ' The strip is not that of the source.' : '';
  return {
    alignment,
    quality: quality.score,
    reasoning: `The letters of '${word}' are there by ${percent} percent. ${quality.reasoning}${changed}`,
  };
}

/** Images are reduced to at most this height, in pixels. */
const MAX_HEIGHT = 64;
/** The lowest sign, in pixels. */
const MIN_HEIGHT = 12;

/** An image at the size at which it was drawn: small images are enlarged for a judge by turning each pixel into a square. */
export function nativeSize(image: RgbImage): RgbImage {
  const { width, height } = image;
  for (let factor = Math.floor(height / MIN_HEIGHT); factor > 1; factor--) {
    if (width % factor !== 0 || height % factor !== 0) continue;
    const small = resample(image, width / factor, height / factor);
    if (isEnlarged(image, small, factor)) return small;
  }
  const factor = Math.ceil(height / MAX_HEIGHT);
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

/** The mean color of some rows. */
function meanColor({ width, data }: RgbImage, from: number, rows: number): Rgb {
  const sum = [0, 0, 0];
  for (let at = from * width * 3; at < (from + rows) * width * 3; at++) sum[at % 3] += data[at];
  const [red, green, blue] = sum.map((value) => value / (width * rows));
  return [red, green, blue];
}

/** A strip has two colors if they are at least this far apart (Euclidean, in levels of 0 to 255). */
const MIN_DISTANCE = 64;

/** The colors of a sign's strip. Null if it does not have two. */
export function stripStyle(image: RgbImage): SignStyle | null {
  const strip = stripRows(image);
  const paper = meanColor(image, wordRows(image), strip.paper);
  const ink = meanColor(image, image.height - strip.bar, strip.bar);
  return Math.hypot(...ink.map((value, i) => value - paper[i])) < MIN_DISTANCE ? null : { ink, paper };
}

/** A sign above its strip, in a style's colors. */
export interface SignReading {
  readonly geometry: SignGeometry;
  /** Rows above the strip. */
  readonly rows: number;
  /** Between paper (0) and ink (1). Axes [rows, width]. */
  readonly ink: Float32Array;
  /** Distance of each pixel from the nearest mixture of the two colors, in levels of 0 to 255 (Euclidean). Axes [rows, width]. */
  readonly off: Float32Array;
}

/** Measures how much of each pixel above the strip is ink: its position on the line from paper to ink, and its distance from that line. */
export function readSign(image: RgbImage, { ink, paper }: SignStyle): SignReading {
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

/** The letters of signs, any of which a letter could be mistaken for. */
const CAPITALS = [...'ABCDEFGHIJKLMNOPQRSTUVWXYZ'];

/** Quality of one letter, from 0 to 1. */
export type LetterScore = number;

export interface WordReading {
  readonly letters: readonly LetterScore[];
  /** Ink outside the word's strokes, as a share of the word's ink. */
  readonly extra: number;
}

/** A letter's position on a sign, and the letters that could be there. */
interface Slot {
  readonly first: number;
  /** Columns. */
  readonly span: number;
  /** Coverage by the requested letter. Axes [rows, span]. */
  readonly wanted: Template;
  readonly rivals: readonly { readonly template: Template; readonly alike: number }[];
}

/** A pattern with mean 0 and length 1. */
interface Template {
  readonly pattern: Float32Array;
  /** Its length before normalization. */
  readonly length: number;
}

/** A rival that looks like the letter itself at this size (correlation above this) is ignored. */
const ALIKE = 0.95;

function templateOf(coverage: Float32Array, width: number, first: number, span: number, rows: number): Template {
  const pattern = new Float32Array(rows * span);
  for (let y = 0; y < rows; y++) {
    for (let x = 0; x < span; x++) pattern[y * span + x] = coverage[y * width + first + x];
  }
  return centered(pattern);
}

function centered(pattern: Float32Array): Template {
  let mean = 0;
  for (const value of pattern) mean += value / pattern.length;
  let squares = 0;
  for (let at = 0; at < pattern.length; at++) {
    pattern[at] -= mean;
    squares += pattern[at] * pattern[at];
  }
  const length = Math.sqrt(squares);
  if (length > 0) for (let at = 0; at < pattern.length; at++) pattern[at] /= length;
  return { pattern, length };
}

function product(a: Float32Array, b: Float32Array): number {
  let sum = 0;
  for (let at = 0; at < a.length; at++) sum += a[at] * b[at];
  return sum;
}

/** A word on a sign of one size, with all possible mistakes of each letter. */
interface Expected {
  readonly width: number;
  readonly rows: number;
  readonly slots: readonly Slot[];
  /** Coverage by the whole word. Axes [rows, width]. */
  readonly drawn: Float32Array;
}

/** Extension of a letter's slot into the gaps beside it, in heights of a letter. */
const AROUND = 0.13;

function slotOf(letters: readonly PlacedLetter[], at: number, place: Place, drawn: Float32Array, rows: number): Slot {
  const width = drawn.length / rows;
  const { name: wantedName, left: from, width: wide } = letters[at];
  const left = place.left + from * place.size;
  const first = Math.max(0, Math.floor(left - AROUND * place.size));
  const span = Math.min(width, Math.ceil(left + (wide + AROUND) * place.size)) - first;
  const wanted = templateOf(drawn, width, first, span, rows);
  // Neighboring letters extend into the slot. They are drawn as requested in every comparison.
  const others = letters.filter((_, i) => i !== at);
  const beside = inkCoverage(others, place, width, rows);
  const rivals = CAPITALS.filter((name) => name !== wantedName).map((name) => {
    const [alone] = placeLetters(name);
    const middle = left + ((wide - alone.width) * place.size) / 2;
    const coverage = inkCoverage([alone], { ...place, left: middle }, width, rows);
    const template = templateOf(
      coverage.map((value, i) => Math.max(value, beside[i])),
      width,
      first,
      span,
      rows,
    );
    return { template, alike: product(wanted.pattern, template.pattern) };
  });
  return { first, span, wanted, rivals: rivals.filter(({ alike }) => alike < ALIKE) };
}

/** The episodes of a group request the same word, and drawing all rivals costs more than the comparison. */
const kept = new LRUCache<string, Expected>({ max: 256 });

function expect(word: string, geometry: SignGeometry, rows: number): Expected {
  const key = `${word} ${geometry.width}x${geometry.height}`;
  const known = kept.get(key);
  if (known !== undefined) return known;
  const letters = placeLetters(word, SPACING);
  const place = middlePlace(letters, letterHeight(geometry), geometry.width, paperRows(geometry), SPACING);
  const drawn = inkCoverage(letters, place, geometry.width, rows);
  const slots = letters.map((_, at) => slotOf(letters, at, place, drawn, rows));
  const made = { width: geometry.width, rows, slots, drawn };
  kept.set(key, made);
  return made;
}

/** The strengths of a letter's strokes, as a share of drawn ones, at which it starts to count and counts in full. */
const STRENGTH_RANGE = [0.15, 0.6] as const;

/** 0 up to the start of the range, 1 from its end, linear in between. */
export function ramp(value: number, [from, to]: readonly [number, number]): number {
  return Math.min(1, Math.max(0, (value - from) / (to - from)));
}

/**
 * How well a letter is drawn: its correlation with the sign, weighted by how much better it fits than the best rival. That margin is 1 for
 * the letter as drawn, -1 for a rival as drawn, and 0 halfway between. Plain paper correlates with nothing.
 */
function scoreSlot({ first, span, wanted, rivals }: Slot, ink: Float32Array, width: number, rows: number): LetterScore {
  const seen = templateOf(ink, width, first, span, rows);
  const fit = product(seen.pattern, wanted.pattern);
  if (fit <= 0) return 0;
  let margin = 1;
  for (const { template, alike } of rivals) {
    margin = Math.min(margin, (fit - product(seen.pattern, template.pattern)) / (1 - alike));
  }
  const strength = (seen.length / wanted.length) * fit;
  return fit * Math.max(0, (1 + margin) / 2) ** 2 * ramp(strength, STRENGTH_RANGE);
}

/** The ink shifted by whole pixels. Paper enters from outside. */
function moved(ink: Float32Array, width: number, rows: number, right: number, down: number): Float32Array {
  const result = new Float32Array(ink.length);
  for (let y = Math.max(0, down); y < Math.min(rows, rows + down); y++) {
    for (let x = Math.max(0, right); x < Math.min(width, width + right); x++) {
      result[y * width + x] = ink[(y - down) * width + x - right];
    }
  }
  return result;
}

/** A word may be shifted as a whole by at most this many pixels. */
const MAX_MOVED = 1;

/** Whether a sign has room for a word. Raises DataError for characters that no sign shows. */
export function hasRoom(geometry: SignGeometry, word: string): boolean {
  return wordSize(word, letterHeight(geometry), SPACING).width <= geometry.width;
}

/** Reads a word that the sign has room for. Raises DataError for characters that no sign shows. */
export function readWord({ geometry, rows, ink }: SignReading, word: string): WordReading {
  const { width, slots, drawn } = expect(word, geometry, rows);
  let best = null as { readonly sum: number; readonly reading: WordReading } | null;
  for (let down = -MAX_MOVED; down <= MAX_MOVED; down++) {
    for (let right = -MAX_MOVED; right <= MAX_MOVED; right++) {
      const there = moved(ink, width, rows, right, down);
      const letters = slots.map((slot) => scoreSlot(slot, there, width, rows));
      const sum = letters.reduce((a, b) => a + b, 0);
      if (best !== null && sum <= best.sum) continue;
      best = { sum, reading: { letters, extra: extraInk(there, drawn, width, rows) } };
    }
  }
  return must(best, 'the reading of a word that is not moved').reading;
}

/** Ink beyond the drawn strokes and the pixels next to them, as a share of the drawn ink. */
function extraInk(ink: Float32Array, drawn: Float32Array, width: number, rows: number): number {
  let [extra, all] = [0, 0];
  for (let y = 0; y < rows; y++) {
    for (let x = 0; x < width; x++) {
      let near = 0;
      for (let v = Math.max(0, y - 1); v <= Math.min(rows - 1, y + 1); v++) {
        for (let u = Math.max(0, x - 1); u <= Math.min(width - 1, x + 1); u++) {
          near = Math.max(near, drawn[v * width + u]);
        }
      }
      extra += Math.max(0, ink[y * width + x] - near);
      all += drawn[y * width + x];
    }
  }
  return all === 0 ? 0 : extra / all;
}

/** A pixel with at least this much ink counts as part of a stroke. */
const STROKE = 0.35;

/** The possible flaws of a sign, each with its own measure. The comments give the value for a drawn sign. */
export interface SignFlaws {
  /** Mean distance of pixels from every mixture of the two colors. 0 for a drawn sign. */
  readonly offColor: number;
  /** Ink in mixed pixels as a share of all ink, from 0 (all crisp) to 1: about a third, for strokes a pixel wide. */
  readonly murk: number;
  /** Mean ink on paper without a stroke next to it: 0. */
  readonly dirt: number;
  /** Connected pieces of strokes: one per letter. */
  readonly pieces: number;
  /** The share of pixels that are strokes: 0.15 to 0.35. */
  readonly filled: number;
}

/** The values at which a flaw begins to count and at which the score is 0. */
const RANGES = {
  offColor: [0.02, 0.8],
  murk: [0.5, 0.85],
  dirt: [0.01, 0.25],
  /** In pieces beyond one per letter, as a share of the letters. */
  broken: [0, 4],
  filled: [0.45, 0.7],
} as const satisfies Readonly<Record<string, readonly [number, number]>>;

/** The distances from a mixture of the two colors at which a pixel begins to count as off and counts in full. */
const OFF_RANGE = [12, 110] as const;

function isNearStroke({ geometry: { width }, rows, ink }: SignReading, x: number, y: number): boolean {
  for (let v = Math.max(0, y - 1); v <= Math.min(rows - 1, y + 1); v++) {
    for (let u = Math.max(0, x - 1); u <= Math.min(width - 1, x + 1); u++) {
      if (ink[v * width + u] >= STROKE) return true;
    }
  }
  return false;
}

/** Pieces of strokes whose pixels touch by a side or a corner. */
function countPieces({ geometry: { width }, rows, ink }: SignReading): number {
  const seen = new Uint8Array(ink.length);
  let pieces = 0;
  for (let start = 0; start < ink.length; start++) {
    if (seen[start] === 1 || ink[start] < STROKE) continue;
    pieces += 1;
    seen[start] = 1;
    const stack = [start];
    for (let at = stack.pop(); at !== undefined; at = stack.pop()) {
      const [x, y] = [at % width, Math.floor(at / width)];
      for (let v = Math.max(0, y - 1); v <= Math.min(rows - 1, y + 1); v++) {
        for (let u = Math.max(0, x - 1); u <= Math.min(width - 1, x + 1); u++) {
          const next = v * width + u;
          if (seen[next] === 1 || ink[next] < STROKE) continue;
          seen[next] = 1;
          stack.push(next);
        }
      }
    }
  }
  return pieces;
}

/** Measures all flaws of a sign. */
export function flawsOf(sign: SignReading): SignFlaws {
  const { geometry, rows, ink, off } = sign;
  let [offColor, mixed, all, strokes, dirt, clear] = [0, 0, 0, 0, 0, 0];
  for (let y = 0; y < rows; y++) {
    for (let x = 0; x < geometry.width; x++) {
      const at = y * geometry.width + x;
      offColor += ramp(off[at], OFF_RANGE) / ink.length;
      mixed += ink[at] * (1 - ink[at]);
      all += ink[at];
      if (ink[at] >= STROKE) strokes += 1;
      if (isNearStroke(sign, x, y)) continue;
      dirt += ink[at];
      clear += 1;
    }
  }
  return {
    offColor,
    murk: all === 0 ? 0 : mixed / all,
    dirt: clear === 0 ? 0 : dirt / clear,
    pieces: countPieces(sign),
    filled: strokes / ink.length,
  };
}

export interface SignQuality {
  /** 0 to 10. */
  readonly score: number;
  readonly reasoning: string;
}

/** A sign has no text if strokes cover less than this share of one letter's square. */
const MIN_TEXT = 0.15;

/** Scores a sign that should have this many letters. */
export function scoreSignQuality(sign: SignReading, letters: number): SignQuality {
  const flaws = flawsOf(sign);
  const { offColor, murk, dirt, pieces, filled } = flaws;
  const square = letterHeight(sign.geometry) ** 2;
  if (filled * sign.ink.length < MIN_TEXT * square) return { score: 0, reasoning: 'There is no text on the sign.' };
  const broken = Math.max(0, pieces - letters) / Math.max(1, letters);
  const penalties: Readonly<Record<string, number>> = {
    'colors that are not of the sign': ramp(offColor, RANGES.offColor),
    'blurred or faded strokes': ramp(murk, RANGES.murk),
    'dirt on the paper': ramp(dirt, RANGES.dirt),
    'broken strokes': ramp(broken, RANGES.broken),
    'more ink than letters have': ramp(filled, RANGES.filled),
  };
  const score = Math.round(10 * Object.values(penalties).reduce((left, penalty) => left * (1 - penalty), 1));
  const found = Object.keys(penalties).filter((name) => penalties[name] > 0.05);
  return { score, reasoning: found.length === 0 ? 'The sign is clean.' : `Found: ${found.join(', ')}.` };
}
