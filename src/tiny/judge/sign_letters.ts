/**
 * Reads the letters of a sign at their expected positions, by templates: each letter of the requested word is compared with every other letter in its
 * place. It uses the strokes that signs are drawn with, and none of the methods of text readers.
 */
import { inkCoverage, middlePlace, placeLetters, wordSize, type Place, type PlacedLetter } from '../world/signs.js';
import { LRUCache } from 'lru-cache';
import { must } from '../../core/errors.js';
import { letterHeight, paperRows, SPACING, type SignGeometry } from '../world/sign_scenes.js';
import type { SeenSign } from './read_sign.js';

/** Letters that are read, and that a letter could be mistaken for. */
const CAPITALS = [...'ABCDEFGHIJKLMNOPQRSTUVWXYZ'];

/** How well one letter is drawn, 0 to 1. */
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
  /** Coverage by the requested letter; axes [rows, span]. */
  readonly wanted: Template;
  readonly rivals: readonly { readonly template: Template; readonly alike: number }[];
}

/** A pattern with mean 0 and length 1. */
interface Template {
  readonly pattern: Float32Array;
  /** Its length before normalisation. */
  readonly length: number;
}

/** A rival that looks like the letter itself at this size (correlation above this) is ignored. */
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

/** A word on a sign of one size, with everything that each letter could be mistaken for. */
interface Expected {
  readonly width: number;
  readonly rows: number;
  readonly slots: readonly Slot[];
  /** Coverage by the whole word; axes [rows, width]. */
  readonly drawn: Float32Array;
}

/** How far a letter's slot reaches into the gaps beside it, in heights of a letter. */
const AROUND = 0.13;

function slotOf(letters: readonly PlacedLetter[], at: number, place: Place, drawn: Float32Array, rows: number): Slot {
  const width = drawn.length / rows;
  const { name: wantedName, left: from, width: wide } = letters[at];
  const left = place.left + from * place.size;
  const first = Math.max(0, Math.floor(left - AROUND * place.size));
  const span = Math.min(width, Math.ceil(left + (wide + AROUND) * place.size)) - first;
  const wanted = templateOf(drawn, width, first, span, rows);
  // Neighbouring letters reach into the slot: they are drawn as requested, whatever is compared.
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

/** The episodes of a group ask for the same word, and drawing all rivals costs more than looking. */
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
 * How well a letter is drawn: its correlation with what is seen, weighted by how much better it fits than the best rival. That margin is 1 for the
 * letter as drawn, -1 for a rival as drawn, and 0 halfway between; plain paper correlates with nothing.
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

/** The ink shifted by whole pixels; paper enters from outside. */
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
