/** What an exam said of the judge that scores a run. */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { showEstimate } from '../../core/estimate.js';
import { printable, RunError } from '../../core/errors.js';
import { wrap } from '../../core/table.js';
import { rewardForms } from '../../config/recipes.js';
import type { ExamCosts } from '../../rewards/exam/costs.js';
import type { CaseEstimate, Verdict } from '../../rewards/exam/findings.js';
import type { RewardSettings } from '../../rewards/schema/reward.js';
import { EXAMS, examsOf, type FoundExam } from '../exams.js';
import type { RunPaths } from '../paths.js';
import type { RunRecord } from '../record.js';
import { recordedSettings } from '../recorded_config.js';
import { costSentence } from './exam_text.js';

export interface ExamSummary {
  readonly folder: string;
  readonly made_at: string;
  readonly cases: number;
  readonly teaches: Verdict['teaches'];
  readonly signal: CaseEstimate;
  /** Names of the faults that the judge was accused of. */
  readonly faults: readonly string[];
  readonly sentences: readonly string[];
  /** Null for an exam whose record lacks them. */
  readonly costs: ExamCosts | null;
}

export function summaryOf({ folder, record }: FoundExam): ExamSummary {
  const { made_at, marks, verdict, costs = null } = record;
  const { cases, signal, findings } = marks;
  const faults = findings.filter(({ accused }) => accused).map(({ name }) => name);
  const { teaches, sentences } = verdict;
  return { folder, made_at, cases, signal, faults, teaches, sentences, costs };
}

/** The latest exam of what scores a run; null where none lies beside it, or this version does not know the run's settings. */
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

/** In one line: when, and how much its scores say. */
export function examCaption({ cases, signal, made_at }: ExamSummary): string {
  return `signal ${showEstimate(signal)} in ${cases} cases, on ${made_at.slice(0, 10)}`;
}

/** What it said, and what a question takes. */
export function examSentences({ sentences, costs }: ExamSummary): string {
  return [...sentences, ...(costs === null ? [] : [costSentence(costs)])].join(' ');
}

/** Lines without a final newline. */
export function examLines(exam: ExamSummary, width: number): string[] {
  const text = `exam of the judge: ${examCaption(exam)}. ${examSentences(exam)}`;
  return [...wrap(printable(text), width), `  ${exam.folder}`];
}
