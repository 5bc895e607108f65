/** How good a sign looks, from pixels alone: two clean colours, crisp strokes, whole letters. The word itself does not matter. */
import { letterHeight } from '../world/sign_scenes.js';
import { ramp } from './sign_letters.js';
import type { SeenSign } from './read_sign.js';

/** A pixel with at least this much ink counts as part of a stroke. */
const STROKE = 0.35;

/** What can be wrong with a sign, each with a measure of its own; the comments give the value for a drawn sign. */
export interface SignFlaws {
  /** Mean distance of pixels from every mixture of the two colours; 0 for a drawn sign. */
  readonly offColour: number;
  /** Ink in mixed pixels as a share of all ink, from 0 (all crisp) to 1: about a third, for strokes a pixel wide. */
  readonly murk: number;
  /** Mean ink on paper without a stroke next to it: 0. */
  readonly dirt: number;
  /** Connected pieces of strokes: one per letter. */
  readonly pieces: number;
  /** The share of pixels that are strokes: 0.15 to 0.35. */
  readonly filled: number;
}

/** The values at which a flaw begins to count and at which nothing is left. */
const RANGES = {
  offColour: [0.02, 0.8],
  murk: [0.5, 0.85],
  dirt: [0.01, 0.25],
  /** In pieces beyond one for each letter, as a share of the letters. */
  broken: [0, 4],
  filled: [0.45, 0.7],
} as const satisfies Readonly<Record<string, readonly [number, number]>>;

/** The distances from a mixture of the two colours at which a pixel begins to count as off and counts in full. */
const OFF_RANGE = [12, 110] as const;

function isNearStroke({ geometry: { width }, rows, ink }: SeenSign, x: number, y: number): boolean {
  for (let v = Math.max(0, y - 1); v <= Math.min(rows - 1, y + 1); v++) {
    for (let u = Math.max(0, x - 1); u <= Math.min(width - 1, x + 1); u++) {
      if (ink[v * width + u] >= STROKE) return true;
    }
  }
  return false;
}

/** Pieces of strokes whose pixels touch by a side or a corner. */
function countPieces({ geometry: { width }, rows, ink }: SeenSign): number {
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

/** Measures everything that can be wrong with a sign. */
export function flawsOf(sign: SeenSign): SignFlaws {
  const { geometry, rows, ink, off } = sign;
  let [offColour, mixed, all, strokes, dirt, clear] = [0, 0, 0, 0, 0, 0];
  for (let y = 0; y < rows; y++) {
    for (let x = 0; x < geometry.width; x++) {
      const at = y * geometry.width + x;
      offColour += ramp(off[at], OFF_RANGE) / ink.length;
      mixed += ink[at] * (1 - ink[at]);
      all += ink[at];
      if (ink[at] >= STROKE) strokes += 1;
      if (isNearStroke(sign, x, y)) continue;
      dirt += ink[at];
      clear += 1;
    }
  }
  return {
    offColour,
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
const LEAST_TEXT = 0.15;

/** Scores a sign that should have this many letters. */
export function scoreSignQuality(sign: SeenSign, letters: number): SignQuality {
  const flaws = flawsOf(sign);
  const { offColour, murk, dirt, pieces, filled } = flaws;
  const square = letterHeight(sign.geometry) ** 2;
  if (filled * sign.ink.length < LEAST_TEXT * square) return { score: 0, reasoning: 'There is no text on the sign.' };
  const broken = Math.max(0, pieces - letters) / Math.max(1, letters);
  const penalties: Readonly<Record<string, number>> = {
    'colours that are not of the sign': ramp(offColour, RANGES.offColour),
    'blurred or faded strokes': ramp(murk, RANGES.murk),
    'dirt on the paper': ramp(dirt, RANGES.dirt),
    'broken strokes': ramp(broken, RANGES.broken),
    'more ink than letters have': ramp(filled, RANGES.filled),
  };
  const score = Math.round(10 * Object.values(penalties).reduce((left, penalty) => left * (1 - penalty), 1));
  const found = Object.keys(penalties).filter((name) => penalties[name] > 0.05);
  return { score, reasoning: found.length === 0 ? 'The sign is clean.' : `Found: ${found.join(', ')}.` };
}
