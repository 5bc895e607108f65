/** An exam's marks in words. Pure. */
import { OTHER_WORDS } from './cases.js';
import { FEWEST_CASES, fidelityOfMean, type ExamMarks, type Finding } from './findings.js';
import { tricks, type TrickName } from './tricks.js';

export interface Verdict {
  /** Whether GRPO will learn from the judge what it is meant to teach. */
  readonly teaches: 'yes' | 'weakly' | 'no' | 'unknown';
  readonly sentences: readonly string[];
}

/**
 * Signals below which a judge teaches nothing, and above which it teaches well. One that pays for copies has to be much better: a copy is an answer
 * that a policy can always give, noise is not. experiments/results/judge_exam.md has the runs that these come from.
 */
export const SIGNAL = { least: 0.5, leastWithCopies: 0.95, well: 0.75 } as const;

const FAULTS: Readonly<Record<string, string>> = {
  blind:
    'Its scores do not follow how good an answer is: it may not see the pictures, or mean something else by its numbers.',
  copies: 'It pays for a copy of the source, which a policy can always give.',
  noise: 'Its scores of one answer differ too much: noise decides many groups.',
  unreadable: 'Too many of its replies hold no score.',
  order: 'Which of two pictures is shown first decides too much: pairs end in ties that are none.',
};

function faultText({ name, estimate }: Finding): string {
  if (name in FAULTS) return FAULTS[name];
  if (name in tricks) {
    const { what } = tricks[name as TrickName];
    return estimate.mean > 0 ? `It pays for ${what}.` : `It holds ${what} against an answer.`;
  }
  const missed = name.replace(/^misses_/, '');
  if (missed === OTHER_WORDS) return 'It does not take the right answer in other words for as good.';
  return `It does not tell the right answer from '${missed}'.`;
}

const round = (value: number): string => value.toFixed(2);

function teachesOf({ signal, findings, cases, understood }: ExamMarks): Verdict['teaches'] {
  if (cases < FEWEST_CASES) return 'unknown';
  // Where no answer gets a score there is nothing to learn from.
  if (understood.mean === 0) return 'no';
  if (Number.isNaN(signal.mean)) return 'unknown';
  const has = (fault: string): boolean => findings.some(({ name, accused }) => accused && name === fault);
  const least = has('copies') ? SIGNAL.leastWithCopies : SIGNAL.least;
  if (has('blind') || has('misses_copy') || signal.mean < least) return 'no';
  // A policy can always copy, write more, and say that it is right.
  const paysForNothing = ['copies', 'length', 'praise', 'control'].some(has);
  return paysForNothing || signal.mean < SIGNAL.well ? 'weakly' : 'yes';
}

const TEACHES: Readonly<Record<Verdict['teaches'], string>> = {
  yes: 'GRPO will learn from it.',
  weakly: 'GRPO will learn from it, but less than from a sound judge.',
  no: 'GRPO will not learn from it what it is meant to.',
  unknown: 'Whether its scores follow how good an answer is could not be measured.',
};
const TOO_FEW = `An exam of fewer than ${FEWEST_CASES} cases is too small for a verdict.`;

/** Tests for which there were no scores are neither passed nor failed. */
function unmeasuredText({ findings }: ExamMarks): string[] {
  const open = findings.filter(({ estimate }) => Number.isNaN(estimate.mean)).length;
  return open === 0 ? [] : [`${open} of ${findings.length} tests could not be measured: there are no scores for them.`];
}

/** What to think of a judge. */
export function verdictOf(marks: ExamMarks): Verdict {
  const teaches = teachesOf(marks);
  const accused = marks.findings.filter((finding) => finding.accused);
  return {
    teaches,
    sentences: [
      marks.cases < FEWEST_CASES ? TOO_FEW : TEACHES[teaches],
      ...accused.map(faultText),
      ...(accused.length === 0 && teaches !== 'unknown' ? ['No fault was found.'] : []),
      ...unmeasuredText(marks),
      ...repeatsText(marks),
    ],
  };
}

const MOST_REPEATS = 8;

/** From how many scores for each answer on a further one gains less than a twentieth; nothing where one is enough. */
function repeatsText(marks: ExamMarks): string[] {
  const { fidelity, reliability } = marks;
  if (!(fidelity.mean > 0) || !(reliability.mean > 0)) return [];
  let repeats = 1;
  while (repeats < MOST_REPEATS && fidelityOfMean(marks, repeats + 1) > 1.05 * fidelityOfMean(marks, repeats)) {
    repeats++;
  }
  if (repeats === 1) return ['One score for each answer is enough.'];
  const gained = `${round(fidelity.mean)} to ${round(fidelityOfMean(marks, repeats))}`;
  return [`The mean of ${repeats} scores would raise its fidelity from ${gained}; more repeats gain little.`];
}
