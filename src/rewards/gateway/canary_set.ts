/**
 * Edits whose scores should not change: a judge that scores them differently than before is a different judge. Two of them differ only in the edited
 * image, which exposes a judge that does not look at images.
 */
import type { RgbImage } from '../../core/image.js';
import type { JudgeQuery } from '../judge/judge.js';
import { JudgeImages } from '../judge/images.js';
import { builtInPrompts, twoScoreQuery, defaultReplyTokens, withInstruction } from '../judge/prompts.js';

export interface Canary {
  readonly name: string;
  /** The question: semantic consistency of the edit, or the edited image's quality. */
  readonly question: 'consistency' | 'quality';
  readonly instruction: string;
  readonly source: RgbImage;
  readonly edited: RgbImage;
}

export interface CanarySet {
  readonly name: string;
  readonly canaries: readonly Canary[];
  /** Two canaries that differ only in the edited image; the first is the better edit. */
  readonly pair: readonly [string, string];
}

const images = new JudgeImages(16);

/** The question about a canary, with the built-in wording. */
export function canaryQuestion({ name, question, instruction, source, edited }: Canary): JudgeQuery {
  const [text, shown] = question === 'quality' ? [builtInPrompts.pq, [edited]] : [builtInPrompts.sc, [source, edited]];
  return twoScoreQuery(
    `canary/${name}`,
    withInstruction(text, instruction),
    shown.map((image) => images.prepare(image, `canary ${name}`)),
    defaultReplyTokens.viescore,
  );
}

type Colour = readonly [number, number, number];
interface Box {
  readonly x: number;
  readonly y: number;
  readonly colour: Colour;
}

/** Large enough to be seen by any judge, small enough to cost it little. */
const side = 224;
const boxSide = 72;

/** Squares on a light ground. */
function picture(boxes: readonly Box[]): RgbImage {
  const data = new Uint8Array(side * side * 3).fill(236);
  for (const { x, y, colour } of boxes) {
    for (let row = y; row < y + boxSide; row++) {
      for (let column = x; column < x + boxSide; column++) data.set(colour, (row * side + column) * 3);
    }
  }
  return { width: side, height: side, data };
}

/** Noise that is the same every time: a linear congruential generator (Numerical Recipes, 2nd edition, section 7.1). */
function noise(): RgbImage {
  const data = new Uint8Array(side * side * 3);
  let state = 1;
  for (let i = 0; i < data.length; i++) {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    data[i] = state >>> 24;
  }
  return { width: side, height: side, data };
}

const red: Colour = [214, 40, 40];
const blue: Colour = [40, 72, 204];
const green: Colour = [36, 152, 70];
const left = (colour: Colour): Box => ({ x: 24, y: 76, colour });
const right = (colour: Colour): Box => ({ x: 128, y: 76, colour });

/** Squares that anyone can tell apart, for judges of photographs and drawings. */
export function genericCanaries(): CanarySet {
  const source = picture([left(red), right(green)]);
  const done = picture([left(blue), right(green)]);
  const instruction = 'make the red square blue';
  const base = { instruction, source };
  return {
    name: 'generic',
    pair: ['done', 'undone'],
    canaries: [
      { ...base, name: 'done', question: 'consistency', edited: done },
      { ...base, name: 'undone', question: 'consistency', edited: source },
      { ...base, name: 'something_else', question: 'consistency', edited: picture([left(red)]) },
      { ...base, name: 'clean', question: 'quality', edited: done },
      { ...base, name: 'noise', question: 'quality', edited: noise() },
    ],
  };
}
