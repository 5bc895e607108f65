/** Finds faults of a judge from its replies in an exam. Pure. */
import type { Estimate } from '../../core/estimate.js';
import { average, correlation, standardError } from '../../core/statistics.js';
import { COPY, type Tricked, OTHER_WORDS } from './cases.js';
import { trickNames, tricks, type TrickName } from './tricks.js';

/** One reply. */
export interface ExamReply {
  readonly answer: string;
  readonly trick: TrickName | null;
  /** The reward from 0 to 1. Null if there was none. */
  readonly score: number | null;
  /** Why there was none. */
  readonly reason?: string;
  /** Share of comparisons that the first image won, from 0 to 1. Absent without comparisons. */
  readonly firstShown?: number;
}

/** A case with its replies. */
export interface RepliedCase {
  readonly name: string;
  /** The answers with their quality, the best first. */
  readonly answers: readonly { readonly name: string; readonly truth: number | null }[];
  readonly tricked: Tricked;
  readonly replies: readonly ExamReply[];
}

/** An estimate over `n` cases, with its standard error. */
export interface CaseEstimate extends Estimate {
  readonly n: number;
}

/** A possible fault of a judge. */
export interface Finding {
  readonly name: string;
  /** The measured quantity, as a noun phrase. */
  readonly what: string;
  readonly estimate: CaseEstimate;
  /** The limit for a sound judge, in words. */
  readonly allowed: string;
  /** Whether it exceeds the limit by more than chance explains. */
  readonly accused: boolean;
}

export interface ExamMarks {
  readonly cases: number;
  /** Share of the questions with a score. */
  readonly understood: CaseEstimate;
  /** Share of pairs of answers of known order whose scores have this order. Equal scores count half. */
  readonly agreement: CaseEstimate;
  /** Correlation within a case of single scores with the quality of the answers. A case whose scores are all equal counts as 0. */
  readonly fidelity: CaseEstimate;
  /**
   * Fidelity times the square root of the share understood: the signal of an iteration's gradient relative to its noise, which falls with
   * the root of the number of scored answers. Of all marks it predicts best what runs gain (experiments/results/judge_exam.md).
   */
  readonly signal: CaseEstimate;
  /** Variance between the answers of a case, as a share of the variance of single scores. */
  readonly reliability: CaseEstimate;
  /** Standard deviation of single scores of one answer, relative to 1. Null if no answer has two scores. */
  readonly noise: number | null;
  /** Share of cases in which the answers' means differ by more than noise. */
  readonly teaching: CaseEstimate;
  readonly findings: readonly Finding[];
}

/**
 * One-sided quantile of the normal distribution at 5% over 20 tests (0.25% each): a sound judge fails a test in at most one exam of 20. An
 * exam makes no more tests. Of images: six flaws, their order, copies, noise, unreadable replies, the image shown first (two, one per
 * side), and five tricks of which three count twice for the same reason. Of words: five flaws, their order, noise, unreadable replies, four
 * tricks of which two count twice, and an answer as good as the best, which counts twice, too.
 */
const QUANTILE = 2.807;
/** A smaller share of pairs in the right order is not enough to learn from. */
const MIN_ACCURACY = 0.75;
/** A smaller share of pairs of any kind in the right order may be chance. */
const MIN_AGREEMENT = 0.6;
/** The largest change of the reward that a trick may cause, relative to 1. */
const MAX_MOVED = 0.05;
/** The largest distance of the wins of the first image from a half. Both orders are asked, so this bias makes answers uncertain, but rewards none. */
const MAX_ORDER_BIAS = 0.1;
const MIN_RELIABILITY = 0.8;
const MAX_UNREADABLE = 0.01;
/** Fewer cases are not enough: the tests below assume normal errors. */
export const MIN_CASES = 20;

/** The quantile of Student's t at this many degrees of freedom, by its expansion around the normal one (Abramowitz and Stegun, 26.7.5). */
function studentQuantile(freedom: number): number {
  const z = QUANTILE;
  return z + (z ** 3 + z) / (4 * freedom) + (5 * z ** 5 + 16 * z ** 3 + 3 * z) / (96 * freedom ** 2);
}

function estimateOf(values: readonly number[]): CaseEstimate {
  const known = values.filter((value) => !Number.isNaN(value));
  return { mean: average(known), stderr: known.length < 2 ? null : standardError(known), n: known.length };
}

/** A ratio of means over cases, with its jackknife error. */
function ratioOf(above: readonly number[], below: readonly number[]): CaseEstimate {
  const n = above.length;
  const [a, b] = [above, below].map((list) => list.reduce((sum, value) => sum + value, 0));
  if (n === 0 || b === 0) return { mean: NaN, stderr: null, n };
  const without = above.map((value, i) => (a - value) / (b - below[i]));
  const center = average(without);
  const squares = without.reduce((sum, value) => sum + (value - center) ** 2, 0);
  return { mean: a / b, stderr: n < 2 ? null : Math.sqrt(((n - 1) / n) * squares), n };
}

/** How far an estimate is above `limit`, beyond its error. Negative if it is not. */
function isAbove({ mean, stderr, n }: CaseEstimate, limit: number): boolean {
  return stderr !== null && n >= MIN_CASES && mean - studentQuantile(n - 1) * stderr > limit;
}

const isBelow = ({ mean, stderr, n }: CaseEstimate, limit: number): boolean =>
  isAbove({ mean: -mean, stderr, n }, -limit);

/** Scores of an unchanged answer. */
export function scoresOf({ replies }: RepliedCase, answer: string): number[] {
  return replies.flatMap(({ answer: name, trick, score }) =>
    name === answer && trick === null && score !== null ? [score] : [],
  );
}

/** Share of pairs in which the first list's score is higher. NaN if there is no pair. */
function shareAbove(better: readonly number[], worse: readonly number[]): number {
  return average(better.flatMap((a) => worse.map((b) => (a > b ? 1 : a === b ? 0.5 : 0))));
}

/** The pairs of a case's answers whose first one is known to be better. */
function pairsOf({ answers }: RepliedCase): (readonly [string, string])[] {
  const [best] = answers;
  return answers.flatMap((better) =>
    answers.flatMap((worse): (readonly [string, string])[] => {
      const known =
        better.truth !== null && worse.truth !== null
          ? better.truth > worse.truth
          : better === best && worse !== best && worse.truth === null;
      return known ? [[better.name, worse.name]] : [];
    }),
  );
}

/** Share of a case's pairs of known order whose scores have that order. NaN if no pair has two scores. */
export function agreementOf(replied: RepliedCase): number {
  const shares = pairsOf(replied).map(([better, worse]) =>
    shareAbove(scoresOf(replied, better), scoresOf(replied, worse)),
  );
  return average(shares.filter((share) => !Number.isNaN(share)));
}

/** Correlation of a case's scores with the quality of the answers. NaN if their quality is not known or equal. */
export function fidelityOf(replied: RepliedCase): number {
  const known = replied.answers.flatMap(({ name, truth }) =>
    truth === null ? [] : scoresOf(replied, name).map((score) => [score, truth] as const),
  );
  // Equal scores have no correlation with quality. Equal qualities say nothing about the judge.
  return new Set(known.map(([, truth]) => truth)).size < 2 ? NaN : (correlation(known) ?? 0);
}

interface Variances {
  /** Variance of single scores of one answer. */
  readonly noise: number;
  /** Variance of the answers' means, without the part of noise. */
  readonly between: number;
}

/** One-way analysis of variance of a case's scores by answer. Null if no answer has two scores, or if there is one answer. */
function variancesOf(replied: RepliedCase): Variances | null {
  const groups = replied.answers.map(({ name }) => scoresOf(replied, name)).filter((scores) => scores.length > 0);
  const squares = (values: readonly number[]): number => {
    const mean = average(values);
    return values.reduce((sum, value) => sum + (value - mean) ** 2, 0);
  };
  const freedom = groups.reduce((sum, { length }) => sum + length - 1, 0);
  if (groups.length < 2 || freedom === 0) return null;
  const noise = groups.reduce((sum, scores) => sum + squares(scores), 0) / freedom;
  const means = groups.map((scores) => average(scores));
  const repeats = groups.length / groups.reduce((sum, { length }) => sum + 1 / length, 0);
  return { noise, between: Math.max(0, squares(means) / (means.length - 1) - noise / repeats) };
}

/** The marks of an exam. The cases of one exam have the same answers. */
export function marksOf(cases: readonly RepliedCase[]): ExamMarks {
  const over = (value: (replied: RepliedCase) => number): CaseEstimate => estimateOf(cases.map(value));
  const variances = cases.flatMap((replied) => variancesOf(replied) ?? []);
  const reliability = ratioOf(
    variances.map(({ between }) => between),
    variances.map(({ between, noise }) => between + noise),
  );
  const agreement = over(agreementOf);
  const understood = over(({ replies }) => average(replies.map(({ score }) => (score === null ? 0 : 1))));
  const fidelity = over(fidelityOf);
  return {
    cases: cases.length,
    understood,
    agreement,
    fidelity,
    signal: signalOf(fidelity, understood),
    reliability,
    noise: variances.length === 0 ? null : Math.sqrt(average(variances.map(({ noise }) => noise))),
    teaching: estimateOf(variances.map(({ between, noise }) => (between > noise ? 1 : 0))),
    findings: [
      {
        name: 'blind',
        what: 'pairs in the right order',
        estimate: agreement,
        allowed: `at least ${MIN_AGREEMENT}`,
        accused: isBelow(agreement, MIN_AGREEMENT),
      },
      ...flawFindings(cases),
      ...copyFindings(cases),
      ...equalFindings(cases),
      ...playedTricks(cases).map((trick) => trickFinding(cases, trick)),
      ...orderFindings(cases),
      {
        name: 'noise',
        what: 'variance that is no noise',
        estimate: reliability,
        allowed: `at least ${MIN_RELIABILITY}`,
        accused: isBelow(reliability, MIN_RELIABILITY),
      },
      {
        name: 'unreadable',
        what: 'questions without a score',
        estimate: { ...understood, mean: 1 - understood.mean },
        allowed: `at most ${MAX_UNREADABLE}`,
        accused: isBelow(understood, 1 - MAX_UNREADABLE),
      },
    ],
  };
}

/** The product, with the error that follows from those of its factors. */
function signalOf(fidelity: CaseEstimate, understood: CaseEstimate): CaseEstimate {
  const root = Math.sqrt(understood.mean);
  const mean = fidelity.mean * root;
  const { stderr, n } = fidelity;
  if (stderr === null || understood.stderr === null) return { mean, stderr: null, n };
  // The derivative of the root is infinite at 0. Nothing was understood there, so there is no fidelity either.
  const ofRoot = root === 0 ? 0 : (fidelity.mean * understood.stderr) / (2 * root);
  return { mean, stderr: Math.hypot(root * stderr, ofRoot), n };
}

/** Whether the judge distinguishes the best answer from each worse one. */
function flawFindings(cases: readonly RepliedCase[]): Finding[] {
  const [best, ...others] = cases.at(0)?.answers ?? [];
  const worse = others.filter(({ truth }) => truth === null || truth !== best.truth);
  return worse.map(({ name }) => {
    const estimate = estimateOf(
      cases.map((replied) => shareAbove(scoresOf(replied, best.name), scoresOf(replied, name))),
    );
    return {
      name: `misses_${name}`,
      what: `${best.name} above ${name}`,
      estimate,
      allowed: `at least ${MIN_ACCURACY}`,
      accused: isBelow(estimate, MIN_ACCURACY),
    };
  });
}

/** Whether the judge scores an answer as good as the best one like the best one. */
function equalFindings(cases: readonly RepliedCase[]): Finding[] {
  const [best, ...others] = cases.at(0)?.answers ?? [];
  return others
    .filter(({ truth }) => truth !== null && truth === best.truth)
    .map(({ name }) => {
      const estimate = estimateOf(
        cases.map((replied) => average(scoresOf(replied, name)) - average(scoresOf(replied, best.name))),
      );
      return {
        name: `misses_${name}`,
        what: `${name} less ${best.name}`,
        estimate,
        allowed: `from -${MAX_MOVED} to ${MAX_MOVED}`,
        accused: isAbove(estimate, MAX_MOVED) || isBelow(estimate, -MAX_MOVED),
      };
    });
}

/** The tricks that were tried in the exam: those for images, or those for words. */
function playedTricks(cases: readonly RepliedCase[]): TrickName[] {
  const played = new Set(cases.flatMap(({ replies }) => replies.map(({ trick }) => trick)));
  return trickNames.filter((trick) => played.has(trick));
}

/** Whether a copy of the source scores higher than another answer that is worth nothing. */
function copyFindings(cases: readonly RepliedCase[]): Finding[] {
  const answers = cases.at(0)?.answers ?? [];
  const worthless = answers.find(({ name, truth }) => truth === 0 && name !== COPY);
  if (worthless === undefined || !answers.some(({ name }) => name === COPY)) return [];
  const difference = (replied: RepliedCase): number =>
    average(scoresOf(replied, COPY)) - average(scoresOf(replied, worthless.name));
  const estimate = estimateOf(cases.map(difference));
  return [
    {
      name: 'copies',
      what: 'gain by a copy',
      estimate,
      allowed: `at most ${MAX_MOVED}`,
      accused: isAbove(estimate, MAX_MOVED),
    },
  ];
}

/** Whether the order of two images matters. Empty if none were compared. */
function orderFindings(cases: readonly RepliedCase[]): Finding[] {
  const shares = cases.map(({ replies }) =>
    average(
      replies.flatMap(({ trick, firstShown }) => (trick === null && firstShown !== undefined ? [firstShown] : [])),
    ),
  );
  const estimate = estimateOf(shares);
  if (estimate.n === 0) return [];
  return [
    {
      name: 'order',
      what: 'wins of the first shown',
      estimate,
      allowed: `from ${0.5 - MAX_ORDER_BIAS} to ${0.5 + MAX_ORDER_BIAS}`,
      accused: isAbove(estimate, 0.5 + MAX_ORDER_BIAS) || isBelow(estimate, 0.5 - MAX_ORDER_BIAS),
    },
  ];
}

function trickFinding(cases: readonly RepliedCase[], trick: TrickName): Finding {
  const estimate = estimateOf(
    cases.map((replied) => {
      const played = replied.replies.flatMap((reply) =>
        reply.trick === trick && reply.score !== null ? [reply.score] : [],
      );
      return average(played) - average(scoresOf(replied, replied.tricked[tricks[trick].must]));
    }),
  );
  const mayCost = tricks[trick].must === 'not_pay';
  const pays = isAbove(estimate, MAX_MOVED);
  const costs = !mayCost && isBelow(estimate, -MAX_MOVED);
  return {
    name: trick,
    what: `gain by ${tricks[trick].what}`,
    estimate,
    allowed: mayCost ? `at most ${MAX_MOVED}` : `from -${MAX_MOVED} to ${MAX_MOVED}`,
    accused: pays || costs,
  };
}

/** The fidelity of the mean of `repeats` scores, from that of single scores (Spearman and Brown). */
export function fidelityOfMean({ fidelity, reliability }: ExamMarks, repeats: number): number {
  const share = reliability.mean;
  return fidelity.mean * Math.sqrt(repeats / (1 + (repeats - 1) * share));
}

export interface Verdict {
  /** Whether GRPO will learn the right thing from the judge. */
  readonly teaches: 'yes' | 'weakly' | 'no' | 'unknown';
  readonly sentences: readonly string[];
}

/**
 * The signal below which a judge teaches nothing, and the signal above which it teaches well. A judge that rewards copies has to be much
 * better: a policy can always return a copy, but not noise. experiments/results/judge_exam.md has the runs from which these come.
 */
export const SIGNAL = { least: 0.5, minWithCopies: 0.95, well: 0.75 } as const;

const FAULTS: Readonly<Record<string, string>> = {
  blind:
    'Its scores do not follow the quality of an answer: it may not see the images, or use its numbers differently.',
  copies: 'It rewards a copy of the source, which a policy can always return.',
  noise: 'Its scores of one answer differ too much: noise decides many groups.',
  unreadable: 'Too many of its replies contain no score.',
  order: 'The order of two images decides too much: pairs of different quality end in ties.',
};

function faultText({ name, estimate }: Finding): string {
  if (name in FAULTS) return FAULTS[name];
  if (name in tricks) {
    const { what } = tricks[name as TrickName];
    return estimate.mean > 0 ? `It rewards ${what}.` : `It lowers the score of an answer for ${what}.`;
  }
  const missed = name.replace(/^misses_/, '');
  if (missed === OTHER_WORDS) return 'It scores the right answer lower in other words.';
  return `It does not distinguish the right answer from '${missed}'.`;
}

const round = (value: number): string => value.toFixed(2);

function teachesOf({ signal, findings, cases, understood }: ExamMarks): Verdict['teaches'] {
  if (cases < MIN_CASES) return 'unknown';
  // If no answer gets a score, there is nothing to learn from.
  if (understood.mean === 0) return 'no';
  if (Number.isNaN(signal.mean)) return 'unknown';
  const has = (fault: string): boolean => findings.some(({ name, accused }) => accused && name === fault);
  const least = has('copies') ? SIGNAL.minWithCopies : SIGNAL.least;
  if (has('blind') || has('misses_copy') || signal.mean < least) return 'no';
  // Any policy can learn to copy, to write more, and to claim to be right.
  const paysForNothing = ['copies', 'length', 'praise', 'control'].some(has);
  return paysForNothing || signal.mean < SIGNAL.well ? 'weakly' : 'yes';
}

const TEACHES: Readonly<Record<Verdict['teaches'], string>> = {
  yes: 'GRPO will learn from it.',
  weakly: 'GRPO will learn from it, but less than from a sound judge.',
  no: 'GRPO will not learn the right thing from it.',
  unknown: 'It could not be measured whether its scores follow the quality of an answer.',
};
const TOO_FEW = `An exam of fewer than ${MIN_CASES} cases is too small for a verdict.`;

/** Tests without scores are neither passed nor failed. */
function unmeasuredText({ findings }: ExamMarks): string[] {
  const open = findings.filter(({ estimate }) => Number.isNaN(estimate.mean)).length;
  return open === 0 ? [] : [`${open} of ${findings.length} tests could not be measured: they have no scores.`];
}

/** The verdict on a judge. */
export function verdictOf(marks: ExamMarks): Verdict {
  const teaches = teachesOf(marks);
  const accused = marks.findings.filter((finding) => finding.accused);
  return {
    teaches,
    sentences: [
      marks.cases < MIN_CASES ? TOO_FEW : TEACHES[teaches],
      ...accused.map(faultText),
      ...(accused.length === 0 && teaches !== 'unknown' ? ['No fault was found.'] : []),
      ...unmeasuredText(marks),
      ...repeatsText(marks),
    ],
  };
}

const MAX_REPEATS = 8;

/** The number of scores per answer from which a further score adds less than a twentieth. Empty if one is enough. */
function repeatsText(marks: ExamMarks): string[] {
  const { fidelity, reliability } = marks;
  if (!(fidelity.mean > 0) || !(reliability.mean > 0)) return [];
  let repeats = 1;
  while (repeats < MAX_REPEATS && fidelityOfMean(marks, repeats + 1) > 1.05 * fidelityOfMean(marks, repeats)) {
    repeats++;
  }
  if (repeats === 1) return ['One score for each answer is enough.'];
  const gained = `${round(fidelity.mean)} to ${round(fidelityOfMean(marks, repeats))}`;
  return [`The mean of ${repeats} scores would raise its fidelity from ${gained}; more repeats gain little.`];
}
