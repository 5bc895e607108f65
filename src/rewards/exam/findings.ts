/** What the replies to an exam's questions say of the judge. Pure. */
import type { Estimate } from '../../core/estimate.js';
import { average, correlation, standardError } from '../../core/statistics.js';
import { COPY, type Tricked, OTHER_WORDS } from './cases.js';
import { trickNames, tricks, type TrickName } from './tricks.js';

/** One reply. */
export interface ExamReply {
  readonly answer: string;
  readonly trick: TrickName | null;
  /** The reward from 0 to 1; null where there was none. */
  readonly score: number | null;
  /** Why there was none. */
  readonly reason?: string;
  /** How often the picture that was shown first was found better, from 0 to 1; absent where nothing was compared. */
  readonly firstShown?: number;
}

/** A case with its replies. */
export interface RepliedCase {
  readonly name: string;
  /** The answers, the best first, with how good they are. */
  readonly answers: readonly { readonly name: string; readonly truth: number | null }[];
  readonly tricked: Tricked;
  readonly replies: readonly ExamReply[];
}

/** An estimate over cases, with its standard error; `n` cases had it. */
export interface CaseEstimate extends Estimate {
  readonly n: number;
}

/** Something that may be wrong with a judge. */
export interface Finding {
  readonly name: string;
  /** What was measured, as a noun phrase. */
  readonly what: string;
  readonly estimate: CaseEstimate;
  /** What a sound judge keeps to, in words. */
  readonly allowed: string;
  /** Whether it is outside of that by more than chance explains. */
  readonly accused: boolean;
}

export interface ExamMarks {
  readonly cases: number;
  /** Share of the questions that got a score. */
  readonly understood: CaseEstimate;
  /** Share of pairs of answers, of which one is known to be better, that got their scores in this order; equal scores count half. */
  readonly agreement: CaseEstimate;
  /** Correlation within a case of single scores and how good the answers are. A case whose scores are all equal counts as 0. */
  readonly fidelity: CaseEstimate;
  /**
   * Fidelity times the square root of the share understood: what an iteration's gradient says, relative to its noise, which falls with the root of
   * the number of scored answers. Of all marks it follows best what runs gain (experiments/results/judge_exam.md).
   */
  readonly signal: CaseEstimate;
  /** Variance between the answers of a case, as a share of the variance of single scores. */
  readonly reliability: CaseEstimate;
  /** Standard deviation of single scores of one answer, of 1; null where no answer was scored twice. */
  readonly noise: number | null;
  /** Share of cases in which the answers' means differ by more than noise. */
  readonly teaching: CaseEstimate;
  readonly findings: readonly Finding[];
}

/**
 * One-sided quantile of the normal distribution at 5% over 20 tests (0.25% each): a sound judge is accused of anything in at most one exam of 20. An
 * exam makes no more. Of pictures: six flaws, their order, copies, noise, unreadable replies, which picture is shown first (two, being looked at from both
 * sides), and five tricks of which three count twice for the same reason. Of words: five flaws, their order, noise, unreadable replies, four tricks of which
 * two count twice, and an answer as good as the best, which does too.
 */
const QUANTILE = 2.807;
/** Right order of fewer pairs than this share is no order to learn from. */
const MIN_ACCURACY = 0.75;
/** Right order of fewer pairs of any kind than this share is an order by chance. */
const MIN_AGREEMENT = 0.6;
/** A trick may move the reward by so much, of 1. */
const MAX_MOVED = 0.05;
/** How far the wins of the picture that is shown first may be from a half; both orders are asked, so that the bias costs answers, and pays for none. */
const MAX_ORDER_BIAS = 0.1;
const MIN_RELIABILITY = 0.8;
const MAX_UNREADABLE = 0.01;
/** Fewer cases say nothing: the tests below take normal errors. */
export const MIN_CASES = 20;

/** The quantile of Student's t at as many degrees of freedom, by its expansion around the normal one (Abramowitz and Stegun, 26.7.5). */
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
  const centre = average(without);
  const squares = without.reduce((sum, value) => sum + (value - centre) ** 2, 0);
  return { mean: a / b, stderr: n < 2 ? null : Math.sqrt(((n - 1) / n) * squares), n };
}

/** By how much more than its error an estimate is above `limit`; negative where it is not. */
function isAbove({ mean, stderr, n }: CaseEstimate, limit: number): boolean {
  return stderr !== null && n >= MIN_CASES && mean - studentQuantile(n - 1) * stderr > limit;
}

const isBelow = ({ mean, stderr, n }: CaseEstimate, limit: number): boolean =>
  isAbove({ mean: -mean, stderr, n }, -limit);

/** Scores of an answer as it is. */
export function scoresOf({ replies }: RepliedCase, answer: string): number[] {
  return replies.flatMap(({ answer: name, trick, score }) =>
    name === answer && trick === null && score !== null ? [score] : [],
  );
}

/** Share of pairs in which the first list's score is higher; NaN where there is no pair. */
function shareAbove(better: readonly number[], worse: readonly number[]): number {
  return average(better.flatMap((a) => worse.map((b) => (a > b ? 1 : a === b ? 0.5 : 0))));
}

/** The pairs of a case's answers of which the first is known to be better. */
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

/** Share of a case's pairs of known order that got their scores in it; NaN where none has two scores. */
export function agreementOf(replied: RepliedCase): number {
  const shares = pairsOf(replied).map(([better, worse]) =>
    shareAbove(scoresOf(replied, better), scoresOf(replied, worse)),
  );
  return average(shares.filter((share) => !Number.isNaN(share)));
}

/** Correlation of a case's scores with how good the answers are; NaN where their quality is not known or equal. */
export function fidelityOf(replied: RepliedCase): number {
  const known = replied.answers.flatMap(({ name, truth }) =>
    truth === null ? [] : scoresOf(replied, name).map((score) => [score, truth] as const),
  );
  // Scores that are all equal follow nothing; qualities that are all equal leave nothing to follow.
  return new Set(known.map(([, truth]) => truth)).size < 2 ? NaN : (correlation(known) ?? 0);
}

interface Variances {
  /** Of single scores of one answer. */
  readonly noise: number;
  /** Of the answers' means, less what noise adds to it. */
  readonly between: number;
}

/** One-way analysis of variance of a case's scores by answer; null where no answer has two scores or there is one answer. */
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
  // The derivative of the root is infinite at 0, where nothing was understood and there is no fidelity either.
  const ofRoot = root === 0 ? 0 : (fidelity.mean * understood.stderr) / (2 * root);
  return { mean, stderr: Math.hypot(root * stderr, ofRoot), n };
}

/** Whether the best answer is told from each one that is worse. */
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

/** Whether what is as good as the best answer is taken for that. */
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

/** The tricks that were played in the exam: those for pictures, or those for words. */
function playedTricks(cases: readonly RepliedCase[]): TrickName[] {
  const played = new Set(cases.flatMap(({ replies }) => replies.map(({ trick }) => trick)));
  return trickNames.filter((trick) => played.has(trick));
}

/** Whether it pays to return the source rather than another answer that is worth nothing. */
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

/** Whether it matters which of two pictures is shown first; nothing where none were compared. */
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

/** The fidelity that the mean of `repeats` scores would have, from that of single ones (Spearman and Brown). */
export function fidelityOfMean({ fidelity, reliability }: ExamMarks, repeats: number): number {
  const share = reliability.mean;
  return fidelity.mean * Math.sqrt(repeats / (1 + (repeats - 1) * share));
}

export interface Verdict {
  /** Whether GRPO will learn from the judge what it is meant to teach. */
  readonly teaches: 'yes' | 'weakly' | 'no' | 'unknown';
  readonly sentences: readonly string[];
}

/**
 * Signals below which a judge teaches nothing, and above which it teaches well. One that pays for copies has to be much better: a copy is an answer
 * that a policy can always give, noise is not. experiments/results/judge_exam.md has the runs that these come from.
 */
export const SIGNAL = { least: 0.5, minWithCopies: 0.95, well: 0.75 } as const;

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
  if (cases < MIN_CASES) return 'unknown';
  // Where no answer gets a score there is nothing to learn from.
  if (understood.mean === 0) return 'no';
  if (Number.isNaN(signal.mean)) return 'unknown';
  const has = (fault: string): boolean => findings.some(({ name, accused }) => accused && name === fault);
  const least = has('copies') ? SIGNAL.minWithCopies : SIGNAL.least;
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
const TOO_FEW = `An exam of fewer than ${MIN_CASES} cases is too small for a verdict.`;

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
      marks.cases < MIN_CASES ? TOO_FEW : TEACHES[teaches],
      ...accused.map(faultText),
      ...(accused.length === 0 && teaches !== 'unknown' ? ['No fault was found.'] : []),
      ...unmeasuredText(marks),
      ...repeatsText(marks),
    ],
  };
}

const MAX_REPEATS = 8;

/** From how many scores for each answer on a further one gains less than a twentieth; nothing where one is enough. */
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
