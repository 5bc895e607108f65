/** Results of judge exams, for the reports of runs. */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { rewardForms } from '../../config/recipes.js';
import { printable, RunError } from '../../core/errors.js';
import { showEstimate } from '../../core/estimate.js';
import { wrap } from '../../core/terminal.js';
import type { ExamCosts } from '../../rewards/exam/costs.js';
import { MIN_CASES, type CaseEstimate, type Verdict } from '../../rewards/exam/findings.js';
import type { RewardSettings } from '../../rewards/schema/reward.js';
import type { Tokens } from '../../rewards/score/types.js';
import { EXAMS, examsOf, type ExamRecord, type FoundExam } from '../exams.js';
import type { RunPaths } from '../paths.js';
import type { RunRecord } from '../record.js';
import { recordedSettings } from '../recorded_config.js';

export interface ExamSummary {
  readonly folder: string;
  readonly made_at: string;
  readonly cases: number;
  readonly teaches: Verdict['teaches'];
  readonly signal: CaseEstimate;
  /** Names of the faults that the exam found in the judge. */
  readonly faults: readonly string[];
  readonly sentences: readonly string[];
  readonly costs: ExamCosts;
}

export function summaryOf({ folder, record }: FoundExam): ExamSummary {
  const { made_at, marks, verdict, costs } = record;
  const { cases, signal, findings } = marks;
  const faults = findings.filter(({ accused }) => accused).map(({ name }) => name);
  const { teaches, sentences } = verdict;
  return { folder, made_at, cases, signal, faults, teaches, sentences, costs };
}

/**
 * The latest exam of a run's reward. Null if there is none beside the run, or if this version does not know the run's
 * settings.
 */
export function examOf({ baseExpDir }: RunPaths, recorded: RunRecord['settings']): ExamSummary | null {
  if (!existsSync(join(baseExpDir, EXAMS))) return null;
  try {
    const reward = rewardForms().settingsOf(recordedSettings(recorded)) as RewardSettings | null;
    const found = reward === null ? undefined : examsOf(baseExpDir, reward).at(-1);
    return found === undefined ? null : summaryOf(found);
  } catch (error) {
    if (error instanceof RunError) return null;
    throw error;
  }
}

/** One line with the date and the signal of the judge's scores. */
export function examCaption({ cases, signal, made_at }: ExamSummary): string {
  return `signal ${showEstimate(signal)} in ${cases} cases, on ${made_at.slice(0, 10)}`;
}

/** The sentences of the exam, and the cost of a request. */
export function examSentences({ sentences, costs }: ExamSummary): string {
  return [...sentences, costSentence(costs)].join(' ');
}

/** The lines without a final newline. */
export function examLines(exam: ExamSummary, width: number): string[] {
  const text = `exam of the judge: ${examCaption(exam)}. ${examSentences(exam)}`;
  return [...wrap(printable(text), width), `  ${exam.folder}`];
}

/** Name, value and meaning of each mark. */
export function examMarkRows({ marks }: ExamRecord): string[][] {
  const noise =
    marks.noise === null
      ? []
      : [['noise', marks.noise.toFixed(3), 'standard deviation of repeated scores of one answer (0 to 1)']];
  return [
    ['signal', shown(marks.signal), 'fidelity times the square root of understood'],
    ['understood', shown(marks.understood), 'share of questions with a score'],
    ['agreement', shown(marks.agreement), 'share of answer pairs in the right order'],
    ['fidelity', shown(marks.fidelity), 'correlation of scores with quality within a case'],
    ['reliability', shown(marks.reliability), 'share of the variance that is not noise'],
    ...noise,
    ['teaching', shown(marks.teaching), 'share of cases whose scores differ by more than noise'],
  ];
}

export interface ExamTestRow {
  /** The test, its result, and the allowed values. */
  readonly cells: readonly string[];
  /** `ok`, `fault: <name>`, or that there were too few cases. */
  readonly verdict: string;
  readonly isFault: boolean;
}

/** The result of each test. A test without a value or with too few cases has neither passed nor failed. */
export function examTestRows({ marks }: ExamRecord): ExamTestRow[] {
  return marks.findings.map(({ name, what, estimate, allowed, accused }) => ({
    cells: [what, shown(estimate), allowed],
    verdict: accused ? `fault: ${name}` : (untested(estimate) ?? 'ok'),
    isFault: accused,
  }));
}

function untested(estimate: CaseEstimate): string | null {
  if (!isMeasured(estimate)) return 'not measured';
  return estimate.n < MIN_CASES ? 'too few cases' : null;
}

/** In a stored record, null replaces NaN. */
const isMeasured = ({ mean }: CaseEstimate): boolean => Number.isFinite(mean);

const shown = (estimate: CaseEstimate): string => (isMeasured(estimate) ? showEstimate(estimate) : '–');

/** The number of judgements, and why some have no scores. */
export function judgementsText({ judgements }: ExamRecord): string {
  const { count, requests, problems } = judgements;
  const without = Object.entries(problems).map(([reason, lost]) => `${lost} ${reason}`);
  const lost = without.length === 0 ? '' : `, without scores: ${without.join(', ')}`;
  return `${count} judgements, ${requests} requests${lost}`;
}

const NO_TOKENS = 'the server does not report tokens';

/** Name, value and meaning of each cost. */
export function examCostRows({ costs, judgements }: ExamRecord): string[][] {
  const { tokens, seconds } = costs;
  const known =
    tokens === null || tokens.questions === judgements.count
      ? ''
      : `, over ${tokens.questions} questions with reported tokens`;
  return [
    tokens === null
      ? ['tokens', 'unknown', NO_TOKENS]
      : ['tokens', showTokens(tokens), `mean per question with its reply${known}`],
    ...(seconds === null
      ? []
      : [
          [
            'seconds',
            `${showSeconds(seconds.median)} to ${showSeconds(seconds.p95)}`,
            'per question: median and 95th percentile',
          ],
        ]),
  ];
}

/** The cost of a request, in one sentence. */
export function costSentence({ tokens, seconds }: ExamCosts): string {
  const took = [
    ...(tokens === null ? [] : [`${showTokens(tokens)} tokens`]),
    ...(seconds === null ? [] : [`${showSeconds(seconds.median)} s (95% within ${showSeconds(seconds.p95)} s)`]),
  ];
  const sentence = [
    ...(took.length === 0 ? [] : [`each question takes ${took.join(' and ')}`]),
    ...(tokens === null ? [NO_TOKENS] : []),
  ].join('; ');
  return `${sentence.charAt(0).toUpperCase()}${sentence.slice(1)}.`;
}

/** Tokens of the prompt and of the completion. */
function showTokens({ prompt, completion }: Tokens): string {
  return `${Math.round(prompt)} + ${Math.round(completion)}`;
}

const showSeconds = (value: number): string => value.toFixed(value < 1 ? 3 : 2);
