/** Whether a judge still answers as in its exam, from some answers of the exam that it judges again. Pure. */
import { average } from '../../core/statistics.js';

/** An answer to judge again, with the result of its replies in the exam. */
export interface RepeatedAnswer {
  /** A name such as `half_done of case 3`. */
  readonly name: string;
  /** The reward in the exam, from 0 to 1: a mean over `repeats` replies. */
  readonly before: number;
  readonly repeats: number;
}

export interface ExamDrift {
  /** Answers with a score both then and now. */
  readonly scored: number;
  /** Root of the mean squared change of a score, relative to 1. */
  readonly moved: number;
  /** The part of it that the judge's noise explains, relative to 1. */
  readonly explained: number;
  readonly drifted: boolean;
  /** The answer with the largest change of its score, in words. */
  readonly most: string;
}

/** Fewer scored answers are not enough for a result. */
const MIN_ANSWERS = 8;
/**
 * With this many deviations, the change of 20 scores exceeds noise once in 60,000 times, if noise is normal and equally large everywhere. A
 * judge is asked a second time before anything is reported.
 */
const DEVIATIONS = 1.7;
/** A smaller change does not count, however exact the judge is: a few pixels of each image differ. */
const MIN_CHANGE = 0.05;

/**
 * Compares the scores now (null if there is none) with those of the exam, whose single scores have the deviation `noise`. Null if too few
 * have a score.
 */
export function examDrift(
  answers: readonly RepeatedAnswer[],
  scores: readonly (number | null)[],
  noise: number,
): ExamDrift | null {
  const found = answers.flatMap((answer, i) => {
    const now = scores[i];
    return now === null ? [] : [{ ...answer, now, change: Math.abs(now - answer.before) }];
  });
  if (found.length < MIN_ANSWERS) return null;
  const moved = Math.sqrt(average(found.map(({ change }) => change ** 2)));
  // The exam's mean has noise of its own.
  const explained = noise * Math.sqrt(average(found.map(({ repeats }) => 1 + 1 / repeats)));
  const [first] = found.toSorted((a, b) => b.change - a.change);
  return {
    scored: found.length,
    moved,
    explained,
    drifted: moved > Math.max(MIN_CHANGE, DEVIATIONS * explained),
    most: `${first.name} got ${first.now.toFixed(2)}, but ${first.before.toFixed(2)} in the exam`,
  };
}
