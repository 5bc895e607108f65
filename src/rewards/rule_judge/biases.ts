/** Biases that the rule judge has on request: typical faults of real judges, at any strength. */
import { createHash } from 'node:crypto';
import { UsageError } from '../../core/errors.js';
import type { RgbImage } from '../../core/images/image.js';
import { RandomStream } from '../../core/random.js';
import type { Answer, Question } from './protocol.js';
import type { Assessment } from './assessment.js';

/** The input of a bias. */
export interface BiasContext {
  readonly question: Pick<Question, 'kind' | 'instruction' | 'images' | 'graded'>;
  /** The images of the question at their own size, the judged one last. Empty for words. */
  readonly images: readonly RgbImage[];
}

interface Bias {
  readonly description: string;
  /** The kind of answer that it concerns. Default: both. */
  readonly about?: 'images' | 'words';
  /** The scores (0 to 10, before they are clamped) at a strength from 0 to 1. */
  readonly scores: (scores: readonly number[], context: BiasContext, strength: number) => readonly number[];
}

const MAX_SCORE = 10;

/** Numbers that follow from the whole request, so that a repeated question gets the same answer. */
function randomFor({ question: { kind, instruction, images, graded } }: BiasContext, name: string): RandomStream {
  const hash = createHash('sha256').update(`${kind}\n${instruction}\n`);
  for (const url of images) hash.update(`${url}\n`);
  if (graded !== null) hash.update(graded.answer);
  return new RandomStream('judge bias', name, hash.digest('hex'));
}

/** Moves scores towards a target by a share of the way. */
const towards = (scores: readonly number[], target: number, share: number): number[] =>
  scores.map((score) => score + (target - score) * share);

/** Mean difference of two images in levels below which one counts as a copy of the other. */
const SAME = 1;

function isCopy({ images }: BiasContext): boolean {
  const [source, edited] = images;
  if (images.length < 2 || source.data.length !== edited.data.length) return false;
  let sum = 0;
  for (let i = 0; i < source.data.length; i++) sum += Math.abs(source.data[i] - edited.data[i]);
  return sum / source.data.length < SAME;
}

/** An answer of this many words is fully long. */
const MANY_WORDS = 100;

const biases = {
  noise: {
    description: 'normal noise on every score, its deviation as a share of the scale',
    scores: (scores, context, strength) => {
      const random = randomFor(context, 'noise');
      return scores.map((score) => score + MAX_SCORE * strength * random.normal());
    },
  },
  copies: {
    description: 'a copy of the source counts as an edit',
    about: 'images',
    scores: (scores, context, strength) => (isCopy(context) ? towards(scores, MAX_SCORE, strength) : scores),
  },
  length: {
    description: 'long answers in words score higher',
    about: 'words',
    scores: (scores, { question }, strength) => {
      const words = question.graded?.answer.split(/\s+/).length ?? 0;
      return towards(scores, MAX_SCORE, strength * Math.min(1, words / MANY_WORDS));
    },
  },
} as const satisfies Readonly<Record<string, Bias>>;

/** Share of questions whose answer never contains a score. */
const UNREADABLE = 'unreadable';
const UNREADABLE_DESCRIPTION = 'share of questions that never get a score';

export type BiasName = keyof typeof biases | typeof UNREADABLE;
export const biasNames: readonly BiasName[] = [...(Object.keys(biases) as (keyof typeof biases)[]), UNREADABLE];

/** Strengths from 0 to 1 by name. Default: 0. */
export type Biases = Readonly<Partial<Record<BiasName, number>>>;

/** Reads `copies=0.5,noise=0.2`. Raises UsageError. */
export function readBiases(text: string): Biases {
  const found: Partial<Record<BiasName, number>> = {};
  for (const pair of text.split(',')) {
    const [name, value, ...more] = pair.trim().split('=');
    const known = biasNames.find((one) => one === name);
    const strength = Number(value);
    if (known === undefined || value === '' || more.length > 0 || !(strength >= 0 && strength <= 1)) {
      throw new UsageError(
        `found '${pair.trim()}'; allowed: name=strength with a strength from 0 to 1 and one of ${biasNames.join(', ')}`,
        { where: '--bias', next: 'Write it like copies=0.5,noise=0.2.' },
      );
    }
    found[known] = strength;
  }
  return found;
}

/** Whether the judge answers without a score. */
export function isUnreadable(context: BiasContext, strengths: Biases): boolean {
  return randomFor(context, UNREADABLE).uniform() < (strengths[UNREADABLE] ?? 0);
}

/** Scores after the biases, before they are clamped. */
function biased(scores: readonly number[], context: BiasContext, strengths: Biases): readonly number[] {
  let found = scores;
  for (const [name, bias] of Object.entries<Bias>(biases)) {
    const strength = strengths[name as BiasName] ?? 0;
    const here = bias.about === undefined || bias.about === (context.question.graded === null ? 'images' : 'words');
    if (strength > 0 && here) found = bias.scores(found, context, strength);
  }
  return found;
}

const clamped = (score: number): number => Math.min(MAX_SCORE, Math.max(0, score));

/** A biased answer. Null if the judge answers without a score. */
export function withBiases(answer: Answer, context: BiasContext, strengths: Biases): Answer | null {
  if (isUnreadable(context, strengths)) return null;
  const scores = biased(answer.scores, context, strengths).map((score) => Math.round(clamped(score) * 100) / 100);
  return { ...answer, scores };
}

/**
 * A biased judge's assessment of one of the edits of a question (counted from 0), the same as in questions about that edit alone. Noise is
 * drawn for each assessment.
 */
export function biasedAssessment(
  assessment: Assessment,
  { question, images }: BiasContext,
  edit: number,
  strengths: Biases,
): Assessment {
  const about = (kind: BiasContext['question']['kind'], shown: readonly RgbImage[]): BiasContext => ({
    question: { ...question, kind, images: [`edit ${edit}`, ...question.images] },
    images: shown,
  });
  const [success, overedit] = biased(
    [assessment.success, assessment.overedit],
    about('consistency', images),
    strengths,
  );
  const [naturalness, artifacts] = biased(
    [assessment.naturalness, assessment.artifacts],
    about('quality', images.slice(-1)),
    strengths,
  );
  const [s, o, n, a] = [success, overedit, naturalness, artifacts].map(clamped);
  return { success: s, overedit: o, naturalness: n, artifacts: a };
}

/** The names and their meanings, for --help. */
export function biasHelp(): string {
  const rows = [
    ...Object.entries<Bias>(biases).map(([name, { description }]) => [name, description]),
    [UNREADABLE, UNREADABLE_DESCRIPTION],
  ];
  return rows.map(([name, what]) => `  ${name.padEnd(20)} ${what}`).join('\n');
}
