/**
 * Reads the letters of a sign where they should stand, by templates: each letter of the word that is asked for is compared with every other
 * one in its place. It knows the strokes that signs are drawn with, and nothing of what text readers do.
 */
import { inkCoverage, middlePlace, placeLetters, wordSize, type Place, type PlacedLetter } from '../world/signs.js';
import { LRUCache } from 'lru-cache';
import { must } from '../../core/errors.js';
import { letterHeight, paperRows, SPACING, type SignGeometry } from '../world/sign_scenes.js';
import type { SeenSign } from './sign_eyes.js';

/** Letters that are read, and what else a letter could be. */
const CAPITALS = [...'ABCDEFGHIJKLMNOPQRSTUVWXYZ'];

/** How well one letter is there, 0 to 1. */
export type LetterScore = number;

export interface WordReading {
  readonly letters: readonly LetterScore[];
  /** Ink where the word has none, as a share of the ink of the word. */
  readonly extra: number;
}

/** A letter's place on a sign, and what could stand there. */
interface Slot {
  readonly first: number;
  /** Columns. */
  readonly span: number;
  /** Coverage by the letter that is asked for; axes [rows, span]. */
  readonly wanted: Template;
  readonly rivals: readonly { readonly template: Template; readonly alike: number }[];
}

/** A pattern less its mean, and of length 1. */
interface Template {
  readonly pattern: Float32Array;
  /** The length that it had. */
  readonly length: number;
}

/** A rival that looks like the letter itself at this size (a correlation above this) says nothing. */
const ALIKE = 0.95;

function templateOf(coverage: Float32Array, width: number, first: number, span: number, rows: number): Template {
  const pattern = new Float32Array(rows * span);
  for (let y = 0; y < rows; y++) {
    for (let x = 0; x < span; x++) pattern[y * span + x] = coverage[y * width + first + x];
  }
  return centred(pattern);
}

function centred(pattern: Float32Array): Template {
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

/** A word on a sign of one size, with everything that each letter could be taken for. */
interface Expected {
  readonly width: number;
  readonly rows: number;
  readonly slots: readonly Slot[];
  /** Coverage by the whole word; axes [rows, width]. */
  readonly drawn: Float32Array;
}

/** How much of a gap between letters belongs to each of both, in heights of a letter. */
const AROUND = 0.13;

function slotOf(letters: readonly PlacedLetter[], at: number, place: Place, drawn: Float32Array, rows: number): Slot {
  const width = drawn.length / rows;
  const { name: wantedName, left: from, width: wide } = letters[at];
  const left = place.left + from * place.size;
  const first = Math.max(0, Math.floor(left - AROUND * place.size));
  const span = Math.min(width, Math.ceil(left + (wide + AROUND) * place.size)) - first;
  const wanted = templateOf(drawn, width, first, span, rows);
  // The letters beside it reach into its place: they stand as they are asked for, whatever is compared.
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

/** The episodes of a group ask for one word, and drawing what it could be taken for costs more than looking. */
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

/** The strength of a letter's strokes, as a share of drawn ones, from which it counts, and from which it counts in full. */
const STRENGTH_RANGE = [0.15, 0.6] as const;

/** 0 up to the range's first end, 1 from its second, linear between. */
export function ramp(value: number, [from, to]: readonly [number, number]): number {
  return Math.min(1, Math.max(0, (value - from) / (to - from)));
}

/**
 * How well a letter is there: its correlation with what is seen, weighted by how much better it fits than the rival that fits best. That
 * margin is 1 for the letter as it is drawn, -1 for a rival as it is drawn, and 0 halfway between; paper alone correlates with nothing.
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

/** The ink moved by whole pixels; what comes in from outside is paper. */
function moved(ink: Float32Array, width: number, rows: number, right: number, down: number): Float32Array {
  const result = new Float32Array(ink.length);
  for (let y = Math.max(0, down); y < Math.min(rows, rows + down); y++) {
    for (let x = Math.max(0, right); x < Math.min(width, width + right); x++) {
      result[y * width + x] = ink[(y - down) * width + x - right];
    }
  }
  return result;
}

/** A word counts as being in its place where it is moved by at most this many pixels, letters together. */
const MOST_MOVED = 1;

/** Whether a sign has room for a word. Raises DataError for characters that no sign shows. */
export function hasRoom(geometry: SignGeometry, word: string): boolean {
  return wordSize(word, letterHeight(geometry), SPACING).width <= geometry.width;
}

/** Reads a word that the sign has room for. Raises DataError for characters that no sign shows. */
export function readWord({ geometry, rows, ink }: SeenSign, word: string): WordReading {
  const { width, slots, drawn } = expect(word, geometry, rows);
  let best = null as { readonly sum: number; readonly reading: WordReading } | null;
  for (let down = -MOST_MOVED; down <= MOST_MOVED; down++) {
    for (let right = -MOST_MOVED; right <= MOST_MOVED; right++) {
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
