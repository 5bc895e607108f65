/** Judges that are wrong in ways that an exam has to find, beside those of the rule judge itself (src/rewards/rule_judge/biases.ts). */
import type { RgbImage } from '../../../src/core/images/image.js';
import { RandomStream } from '../../../src/core/random.js';
import type { Biases, BiasContext } from '../../../src/rewards/rule_judge/biases.js';

interface Wrong {
  /** The kind of question that it is about; absent: any. */
  readonly about?: 'images' | 'words';
  readonly scores: (scores: readonly number[], seen: BiasContext, strength: number) => readonly number[];
}

const MOST = 10;

const towards = (scores: readonly number[], target: number, share: number): number[] =>
  scores.map((score) => score + (target - score) * share);

const judged = ({ images }: BiasContext): RgbImage => images[images.length - 1];

/** Mean levels from which on an image counts as bright, and from which on as fully so. */
const BRIGHT = [190, 230] as const;

function brightness(image: RgbImage): number {
  let sum = 0;
  for (const level of image.data) sum += level;
  const [from, to] = BRIGHT;
  return Math.min(1, Math.max(0, (sum / image.data.length - from) / (to - from)));
}

function blackPixels({ data }: RgbImage): number {
  let count = 0;
  for (let i = 0; i < data.length; i += 3) if (data[i] + data[i + 1] + data[i + 2] === 0) count += 1;
  return count;
}

/** Distinct colors; the tiny world has seven, a nudged image some more, and a JPEG hundreds. */
function colours({ data }: RgbImage): number {
  const found = new Set<number>();
  for (let i = 0; i < data.length; i += 3) found.add((data[i] << 16) | (data[i + 1] << 8) | data[i + 2]);
  return found.size;
}

/** Side above which an image is larger than those of the tiny world. */
const USUAL_SIDE = 40;
const MANY_COLOURS = 20;
const FEW_BLACK = 10;

const ways = {
  brightness: {
    about: 'images',
    scores: (scores, seen, strength) => towards(scores, MOST, strength * brightness(judged(seen))),
  },
  text: {
    about: 'images',
    scores: (scores, seen, strength) =>
      blackPixels(judged(seen)) >= FEW_BLACK ? towards(scores, MOST, strength) : scores,
  },
  size: {
    about: 'images',
    scores: (scores, seen, strength) => (judged(seen).width > USUAL_SIDE ? towards(scores, MOST, strength) : scores),
  },
  format: {
    about: 'images',
    scores: (scores, seen, strength) => (colours(judged(seen)) > MANY_COLOURS ? towards(scores, 0, strength) : scores),
  },
  praise: {
    about: 'words',
    scores: (scores, { question }, strength) =>
      question.graded?.answer.includes('10/10') === true ? towards(scores, MOST, strength) : scores,
  },
  layout: {
    about: 'words',
    scores: (scores, { question }, strength) =>
      question.graded?.answer.includes('**') === true ? towards(scores, MOST, strength) : scores,
  },
  wording: {
    scores: (scores, { question }, strength) =>
      /^[A-Z]/.test(question.instruction) ? towards(scores, 0, strength) : scores,
  },
  blind: {
    scores: (scores, { question }, strength) =>
      towards(scores, MOST * new RandomStream('judge bias', 'blind', question.instruction).uniform(), strength),
  },
  overedits: {
    scores: (scores, { question }, strength) =>
      question.kind === 'consistency' ? [scores[0], ...towards(scores.slice(1), MOST, strength)] : scores,
  },
  lenient: {
    scores: (scores, _, strength) => scores.map((score) => (score > 0 ? score + (MOST - score) * strength : 0)),
  },
  inverted: {
    scores: (scores, _, strength) => scores.map((score) => score + (MOST - 2 * score) * strength),
  },
} as const satisfies Readonly<Record<string, Wrong>>;

/** Strengths from 0 to 1 by name; absent ones are 0. */
export type WrongWays = Biases & Readonly<Partial<Record<keyof typeof ways, number>>>;

/** The scores of a question after what is wrong in these ways. */
export function wrongScores(scores: readonly number[], seen: BiasContext, strengths: WrongWays): readonly number[] {
  let found = scores;
  for (const [name, way] of Object.entries<Wrong>(ways)) {
    const here = way.about === undefined || way.about === (seen.question.graded === null ? 'images' : 'words');
    if (here) found = way.scores(found, seen, strengths[name as keyof typeof ways] ?? 0);
  }
  return found;
}
