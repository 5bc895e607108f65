/** Whether a judge still answers as it did at its exam, from some of the exam's answers that it is asked about again. Pure. */
import { average } from '../../core/statistics.js';

/** An answer that is asked about again, with what its replies said at the exam. */
export interface RepeatedAnswer {
  /** As `half_done of case 3`. */
  readonly name: string;
  /** The reward then, from 0 to 1: a mean over `repeats` replies. */
  readonly before: number;
  readonly repeats: number;
}

export interface ExamDrift {
  /** Answers that have a score, then and now. */
  readonly scored: number;
  /** Root of the mean squared change of a score, of 1. */
  readonly moved: number;
  /** What the judge's noise explains of that, of 1. */
  readonly explained: number;
  readonly drifted: boolean;
  /** The answer whose score changed most, in words. */
  readonly most: string;
}

/** Fewer scored answers say nothing. */
const MIN_ANSWERS = 8;
/**
 * By so many deviations the change of 20 scores exceeds what noise explains once in 60,000 times, if noise is normal and equally large everywhere. A
 * judge is asked a second time before anything is said.
 */
const DEVIATIONS = 1.7;
/** A smaller change is none, however exact the judge is: a few pixels of each picture differ. */
const MIN_CHANGE = 0.05;

/**
 * Compares the scores now (null where there is none) with those of the exam, of which single ones have the deviation `noise`. Null where too few have a
 * score.
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
    most: `${first.name} got ${first.now.toFixed(2)} where it got ${first.before.toFixed(2)}`,
  };
}
